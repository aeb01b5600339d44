//! OpenVINO's devices as [`GraphDevice`]s: blocks are written as its intermediate representation.

use crate::compile::Ir;
use crate::compiled::CompiledGraph;
use crate::device::Device;
use crate::infer::InferRequest;
use crate::options::Activations;
use crate::running::Running;
use duet_graphs::{ChunkAttention, LayoutRules, RowRule, WeightRule};
use duet_runtimes::{Buffer, DeviceInfo, DeviceKind, Emitted, Error, Graph, GraphDevice, GraphSource, Ports, Tensors};
use duet_types::{Nanos, Tokens};

impl GraphDevice for Device {
    fn info(&self) -> &DeviceInfo {
        self.info()
    }

    fn rules(&self) -> LayoutRules {
        // No property tells; these are OpenVINO's documented limits. What is unknown is asked for the least.
        match self.info().kind {
            DeviceKind::Cpu | DeviceKind::Gpu => LayoutRules::FREE,
            // Compilers for static shapes are asked for the least, too: one scale per output.
            DeviceKind::Npu | DeviceKind::Other => LayoutRules {
                rows: RowRule::StaticMultipleOf(Tokens(1)),
                weights: WeightRule::PerOutput,
                ..LayoutRules::FREE
            },
        }
    }

    fn toolchain(&self) -> &str {
        self.runtime().version()
    }

    fn settings(&self) -> String {
        self.options().to_string()
    }

    fn tolerance(&self) -> f64 {
        self.precision().tolerance() + self.options().activations.map_or(0.0, Activations::tolerance)
    }

    fn emit(&self, source: &GraphSource<'_>) -> Result<Emitted, Error> {
        let duet_graphs::openvino::Ir { xml, bin } =
            duet_graphs::openvino::emit(source.block, source.rows, &self.rules())?;
        Ok(Emitted { graph: xml.into_bytes(), constants: bin })
    }

    fn emit_attention(&self, shape: &ChunkAttention) -> Result<Emitted, Error> {
        let ir = duet_graphs::openvino::emit_attention(shape).ok_or(Error::NoAttention)?;
        Ok(Emitted { graph: ir.xml.into_bytes(), constants: ir.bin })
    }

    fn compile_graph(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, Error> {
        let xml = std::str::from_utf8(&emitted.graph).map_err(|_| Error::NotText { what: "a graph" })?;
        let graph = self.compile(&Ir { xml, bin: &emitted.constants }, self.options())?;
        Ok(Box::new(ReadyGraph::new(graph)))
    }

    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(ReadyGraph::new(self.import(blob, self.options())?)))
    }
}

/// A graph with a request that is used again.
#[derive(Debug)]
pub(crate) struct ReadyGraph {
    graph: CompiledGraph,
    /// Absent before the first inference, during one, and after one that failed.
    request: Option<InferRequest>,
    running: Option<Running>,
}

impl ReadyGraph {
    pub(crate) fn new(graph: CompiledGraph) -> Self {
        Self { graph, request: None, running: None }
    }
}

impl Graph for ReadyGraph {
    fn ports(&self) -> &Ports {
        self.graph.ports()
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        self.graph.export()
    }

    fn start(&mut self, tensors: Tensors) -> Result<(), Error> {
        self.running = None;
        let request = match self.request.take() {
            Some(request) => request,
            None => self.graph.request()?,
        };
        self.running = Some(request.start(tensors)?);
        Ok(())
    }

    fn wait(&mut self, limit: Nanos) -> Result<Vec<Buffer>, Error> {
        let finished = self.running.take().ok_or(Error::NotStarted)?.wait_for(limit)?;
        self.request = Some(finished.request);
        Ok(finished.outputs)
    }
}
