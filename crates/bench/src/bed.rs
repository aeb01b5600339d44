//! What is measured where a device takes compiled graphs: a model, the device, and how both are used.

use duet_graphs::{ActivationRule, Block, CalibrationError, RowRule, Rows, calibrate};
use duet_model::Model;
use duet_model::tokenizer::SpecialTokens;
use duet_runtimes::{BlobCache, Buffer, Emitted, Graph, GraphDevice, GraphSource, Tensors};
use duet_types::{Nanos, TokenId, Tokens};
use std::sync::Arc;
use std::time::Instant;

/// The test bed.
#[derive(Clone, Debug)]
pub struct Bed {
    /// The model.
    pub model: Arc<Model>,
    /// The device.
    pub device: Arc<dyn GraphDevice>,
    /// Threads of the device, where it has such, and of the CPU's kernels where these are compared with it.
    pub threads: u16,
    /// Where compiled graphs are kept.
    pub cache: BlobCache,
}

/// Why a graph was not made, or did not run.
#[derive(Debug, thiserror::Error)]
pub enum BedError {
    /// The device refused.
    #[error(transparent)]
    Device(#[from] duet_runtimes::Error),
    /// It is not known between which numbers a block's values lie.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
}

/// A graph with the memory that it runs on.
pub(crate) struct Runnable {
    graph: Box<dyn Graph>,
    inputs: Vec<Arc<Buffer>>,
    outputs: Vec<Buffer>,
}

impl Bed {
    /// Whether the device takes graphs of any number of rows.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.device.rules().rows == RowRule::Any
    }

    pub(crate) fn compile(&self, block: &Block, rows: Rows) -> Result<Box<dyn Graph>, BedError> {
        self.compile_emitted(&self.emit(block, rows)?)
    }

    pub(crate) fn compile_emitted(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, BedError> {
        Ok(self.device.compile_graph(emitted)?)
    }

    /// A block as the device's compiler takes it; one that computes in integers is told the ranges of the numbers that the
    /// graph will be run on.
    pub(crate) fn emit(&self, block: &Block, rows: Rows) -> Result<Emitted, BedError> {
        let ranges = match self.device.rules().activations {
            ActivationRule::Floats => None,
            ActivationRule::Calibrated => {
                let inputs: Vec<_> = block.inputs().iter().map(|port| values(port.width)).collect();
                Some(calibrate(block, Tokens(1), &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>())?)
            }
        };
        Ok(self.device.emit(&GraphSource { block, rows, ranges: ranges.as_ref() })?)
    }

    pub(crate) fn import(&self, blob: &[u8]) -> Result<Box<dyn Graph>, BedError> {
        Ok(self.device.import_graph(blob)?)
    }

    /// The first `count` tokens of a prose text that ships with the program, repeated where that is too short.
    pub(crate) fn text(&self, count: usize) -> Vec<TokenId> {
        let tokens = self.model.tokenizer().encode(TEXT, SpecialTokens::AsText);
        tokens.into_iter().cycle().take(count).collect()
    }
}

/// More than 2,048 tokens: as long as most prompts that are measured. It has a file of its own so that figures change only
/// when it does.
const TEXT: &str = include_str!("../prompts/prompts.txt");

impl Runnable {
    /// A graph of `block`, to be run on `rows` rows of small numbers.
    pub(crate) fn new(graph: Box<dyn Graph>, block: &Block, rows: Tokens) -> Self {
        let rows = rows.as_usize();
        let inputs = block.inputs().iter().map(|port| Arc::new(Buffer::from(&*values(rows * port.width))));
        let outputs = block.outputs().iter().map(|port| Buffer::zeroed(rows * port.width));
        Self { inputs: inputs.collect(), outputs: outputs.collect(), graph }
    }

    /// Runs it once. How long that took, from lending the memory to having it back.
    pub(crate) fn run(&mut self) -> Result<Nanos, BedError> {
        let tensors = Tensors { inputs: self.inputs.clone(), outputs: std::mem::take(&mut self.outputs) };
        let start = Instant::now();
        self.outputs = self.graph.run(tensors, LONGEST)?;
        Ok(start.elapsed().into())
    }

    /// The graph, to be run on other rows.
    pub(crate) fn into_graph(self) -> Box<dyn Graph> {
        self.graph
    }
}

/// Small numbers.
fn values(len: usize) -> Vec<f32> {
    (0..len).map(|index| ((index * 7) % 13) as f32 / 13.0 - 0.5).collect()
}

/// Measuring waits long: what is slow is to be seen, not to be left.
const LONGEST: Nanos = Nanos(60_000_000_000);

/// How long something takes, and what comes of it.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (Nanos, T) {
    let start = Instant::now();
    let made = work();
    (start.elapsed().into(), made)
}
