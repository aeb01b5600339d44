//! The HTP as a device: compiles blocks, and takes up those that were compiled before.

use crate::generation::Generation;
use crate::graph::HtpGraph;
use crate::lane::Lane;
use crate::provider::Hardware;
use crate::runtime::Runtime;
use duet_graphs::LayoutRules;
use duet_graphs::onnx::{self, OnnxError};
use duet_runtimes::{DeviceInfo, DeviceKind, Emitted, Error, Graph, GraphDevice, GraphSource, QNN_PROVIDER};
use std::sync::Arc;

/// A device. Clones are the same device; it may be used by several threads at once.
#[derive(Clone, Debug)]
pub struct Device {
    runtime: Runtime,
    info: DeviceInfo,
    /// Absent: the one that the provider chooses, which is the machine's own where there is one.
    generation: Option<Generation>,
    toolchain: String,
    lane: Arc<Lane>,
}

impl Device {
    /// # Errors
    /// [`Error::NoDevice`] if `name` is none.
    pub(crate) fn new(runtime: Runtime, name: &str) -> Result<Self, Error> {
        let no_device = || {
            let available = if runtime.provider().has_device(runtime.environment()) { NAMES } else { "none" };
            let (name, available) = (name.to_owned(), available.to_owned());
            Error::NoDevice { runtime: QNN_PROVIDER.title, name, available }
        };
        let generation = match name.strip_prefix("HTP") {
            Some("") => None,
            Some(rest) => {
                let generation = rest.strip_prefix('.').and_then(|name| name.parse().ok());
                Some(generation.ok_or_else(no_device)?)
            }
            None => return Err(no_device()),
        };
        if !runtime.provider().has_device(runtime.environment()) {
            return Err(no_device());
        }
        let info = describe(name, generation);
        let toolchain = runtime.version();
        Ok(Self { runtime, info, generation, toolchain, lane: Arc::default() })
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

    /// The generation that it compiles for; absent if the provider chooses.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        self.generation
    }

    /// Whether the machine's cores stand in for it: then it is for tests.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        Hardware::HERE == Hardware::Emulator
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }
}

/// Activations have sixteen bits, and nonlinearities are rounded once more.
const TOLERANCE: f64 = 5e-3;

/// What `HTP` may be followed by.
const NAMES: &str = "HTP, HTP.v68, HTP.v73, HTP.v75, HTP.v79, HTP.v81";

/// The provider tells nothing of the device.
fn describe(name: &str, generation: Option<Generation>) -> DeviceInfo {
    let full_name = match Hardware::HERE {
        Hardware::Silicon => "Qualcomm HTP",
        Hardware::Emulator => "Qualcomm HTP, emulated on the CPU: for tests only",
    };
    DeviceInfo {
        name: name.to_owned(),
        kind: DeviceKind::Npu,
        full_name: Some(full_name.to_owned()),
        architecture: generation.map(|generation| generation.to_string()),
        driver: None,
        memory: None,
        peaks: Vec::new(),
    }
}

impl GraphDevice for Device {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn rules(&self) -> LayoutRules {
        LayoutRules::HTP
    }

    fn toolchain(&self) -> &str {
        &self.toolchain
    }

    fn settings(&self) -> String {
        let generation = self.generation.map(|generation| generation.number().to_string());
        format!("htp_arch={}", generation.as_deref().unwrap_or("default"))
    }

    fn tolerance(&self) -> f64 {
        TOLERANCE
    }

    fn emit(&self, source: &GraphSource<'_>) -> Result<Emitted, Error> {
        let uncalibrated = || Error::Uncalibrated { block: source.block.name().to_owned() };
        let ranges = source.ranges.ok_or_else(uncalibrated)?;
        let graph = onnx::emit(source.block, ranges, source.rows, &self.rules()).map_err(|error| match error {
            OnnxError::Shape(error) => Error::Shape(error),
            other => Error::Integers(other),
        })?;
        Ok(Emitted { graph, constants: Vec::new() })
    }

    fn compile_graph(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(HtpGraph::compiled(self, &emitted.graph)?))
    }

    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(HtpGraph::opened(self, blob)?))
    }
}
