//! A device of OpenVINO: compiles graphs, and takes up those that were compiled before.

use crate::compile::{Ir, compile, import};
use crate::compiled::CompiledGraph;
use crate::offer::{LeftOut, Offer, refusal};
use crate::options::{CompileOptions, NpuFrontEnd, Precision};
use crate::runtime::Runtime;
use duet_runtimes::DeviceInfo;
use duet_runtimes::Error;

/// A device. Clones are the same device; it may be used by several threads at once.
#[derive(Clone, Debug)]
pub struct Device {
    runtime: Runtime,
    info: DeviceInfo,
    options: CompileOptions,
    left_out: Vec<LeftOut>,
}

impl Device {
    pub(crate) fn new(runtime: Runtime, info: DeviceInfo) -> Self {
        Self { runtime, info, options: CompileOptions::default(), left_out: Vec::new() }
    }

    /// The NPU's plugin with its front end, computing on the CPU.
    pub(crate) fn npu_front_end_on_cpu(runtime: Runtime, info: DeviceInfo) -> Self {
        let options = CompileOptions { npu_front_end: Some(NpuFrontEnd::OnCpu), ..CompileOptions::default() };
        Self { options, ..Self::new(runtime, info) }
    }

    /// What it says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The runtime that it belongs to.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The same device, which compiles blocks and takes them up with these options, as far as it takes them: it is asked.
    /// Takes some milliseconds.
    #[must_use]
    pub fn with_options(self, wanted: CompileOptions) -> Self {
        let npu_front_end = wanted.npu_front_end.or(self.options.npu_front_end);
        let refusal = |one: &CompileOptions| refusal(&self.runtime, &self.info.name, one);
        let (options, left_out) = self.offer().taken(CompileOptions { npu_front_end, ..wanted }, &refusal);
        Self { options, left_out, ..self }
    }

    /// What it was to be told, and is not.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// What it computes in, as it was told; if it was told nothing, the coarsest that it offers.
    #[must_use]
    pub fn precision(&self) -> Precision {
        match self.options.npu_front_end {
            // Who computes behind it is told nothing, and is handed halves: a CPU that knows none widens them again.
            Some(NpuFrontEnd::OnCpu) => {
                Offer::of(&|key| self.runtime.property("CPU", key)).computes_in(None).max(Precision::F16)
            }
            None => self.offer().computes_in(self.options.precision),
        }
    }

    fn offer(&self) -> Offer {
        Offer::of(&|key| self.runtime.property(&self.info.name, key))
    }

    /// How it compiles blocks and takes them up; the calls that follow have options of their own.
    #[must_use]
    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    /// Compiles a graph. Takes tens of milliseconds on a CPU, and seconds on an NPU.
    ///
    /// # Errors
    /// If the graph is malformed, or the device cannot run it: an NPU refuses rows that vary.
    pub fn compile(&self, ir: &Ir<'_>, options: &CompileOptions) -> Result<CompiledGraph, Error> {
        compile(&self.runtime, &self.info.name, ir, options)
    }

    /// Takes up what [`CompiledGraph::export`] has made, with the options that it was compiled with. The bytes must be
    /// whole and from the same device, driver and runtime (see [`duet_runtimes::BlobCache`]): OpenVINO checks little of them.
    ///
    /// # Errors
    /// If OpenVINO refuses the bytes.
    pub fn import(&self, blob: &[u8], options: &CompileOptions) -> Result<CompiledGraph, Error> {
        import(&self.runtime, &self.info.name, blob, options)
    }
}
