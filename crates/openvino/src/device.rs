//! A device of OpenVINO: compiles graphs, and takes up those that were compiled before.

use crate::compile::{Ir, compile, import};
use crate::compiled::CompiledGraph;
use crate::options::CompileOptions;
use crate::runtime::Runtime;
use duet_runtimes::DeviceInfo;
use duet_runtimes::Error;

/// A device. Clones are the same device; it may be used by several threads at once.
#[derive(Clone, Debug)]
pub struct Device {
    runtime: Runtime,
    info: DeviceInfo,
    options: CompileOptions,
}

impl Device {
    pub(crate) fn new(runtime: Runtime, info: DeviceInfo) -> Self {
        Self { runtime, info, options: CompileOptions::default() }
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

    /// The same device, which compiles blocks and takes them up with these options.
    #[must_use]
    pub fn with_options(self, options: CompileOptions) -> Self {
        Self { options, ..self }
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
