//! What the engine needs of a device that runs compiled graphs, without its toolchain: so that a cache, a plan of
//! faults or another toolchain can stand where OpenVINO's device stands.

use crate::buffer::{Buffer, Tensors};
use crate::compile::Ir;
use crate::compiled::CompiledGraph;
use crate::device::Device;
use crate::error::Error;
use crate::infer::InferRequest;
use crate::info::DeviceInfo;
use crate::options::CompileOptions;
use crate::port::Ports;
use duet_types::Nanos;
use std::fmt::Debug;

/// Makes graphs ready to run.
pub trait GraphDevice: Debug + Send + Sync {
    /// What the device says of itself.
    fn info(&self) -> &DeviceInfo;

    /// The version of what compiles for it: with another one, exported graphs are worth nothing.
    fn toolchain(&self) -> &str;

    /// Compiles a graph; see [`Device::compile`].
    ///
    /// # Errors
    /// If the device cannot run it.
    fn compile_graph(&self, ir: &Ir<'_>, options: &CompileOptions) -> Result<Box<dyn Graph>, Error>;

    /// Takes up an exported graph; see [`Device::import`].
    ///
    /// # Errors
    /// If the device refuses the bytes.
    fn import_graph(&self, blob: &[u8], options: &CompileOptions) -> Result<Box<dyn Graph>, Error>;
}

/// A graph that is ready: one inference at a time.
pub trait Graph: Debug + Send {
    /// Its inputs and outputs.
    fn ports(&self) -> &Ports;

    /// Its bytes, to be taken up later by the same device.
    ///
    /// # Errors
    /// If the device does not export.
    fn export(&self) -> Result<Vec<u8>, Error>;

    /// Runs it and returns the outputs, in the order of its ports; waits no longer than `limit`. Whatever happens, it
    /// can be run again.
    ///
    /// # Errors
    /// If the tensors do not fit or the device fails. With [`Error::Hung`] the outputs, and a share of the inputs, stay
    /// with the device until it answers.
    fn run(&mut self, tensors: Tensors, limit: Nanos) -> Result<Vec<Buffer>, Error>;
}

impl GraphDevice for Device {
    fn info(&self) -> &DeviceInfo {
        self.info()
    }

    fn toolchain(&self) -> &str {
        self.runtime().version()
    }

    fn compile_graph(&self, ir: &Ir<'_>, options: &CompileOptions) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(ReadyGraph::new(self.compile(ir, options)?)))
    }

    fn import_graph(&self, blob: &[u8], options: &CompileOptions) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(ReadyGraph::new(self.import(blob, options)?)))
    }
}

/// A graph with a request that is used again.
#[derive(Debug)]
struct ReadyGraph {
    graph: CompiledGraph,
    /// Absent before the first inference and after one that failed.
    request: Option<InferRequest>,
}

impl ReadyGraph {
    fn new(graph: CompiledGraph) -> Self {
        Self { graph, request: None }
    }
}

impl Graph for ReadyGraph {
    fn ports(&self) -> &Ports {
        self.graph.ports()
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        self.graph.export()
    }

    fn run(&mut self, tensors: Tensors, limit: Nanos) -> Result<Vec<Buffer>, Error> {
        let request = match self.request.take() {
            Some(request) => request,
            None => self.graph.request()?,
        };
        let finished = request.start(tensors)?.wait_for(limit)?;
        self.request = Some(finished.request);
        Ok(finished.outputs)
    }
}
