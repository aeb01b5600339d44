//! A graph that was tried, and runs with a limit that follows from the trial.

use crate::patience::{Patience, TRIAL_LIMIT, TRIAL_ROWS};
use duet_graphs::{Block, Rows};
use duet_runtimes::{Buffer, Error, Graph, Tensors};
use duet_types::Tokens;
use std::sync::Arc;
use std::time::Instant;

/// How wide a block's ports are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Widths {
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
}

/// A graph, and how long it may take.
#[derive(Debug)]
pub(crate) struct ReadyGraph {
    graph: Box<dyn Graph>,
    patience: Patience,
}

impl Widths {
    pub(crate) fn of(block: &Block) -> Self {
        let inputs = block.inputs().iter().map(|port| port.width).collect();
        Self { inputs, outputs: block.outputs().iter().map(|port| port.width).collect() }
    }

    fn zeros(&self, rows: usize) -> Tensors {
        let inputs = self.inputs.iter().map(|width| Arc::new(Buffer::zeroed(rows * width)));
        let outputs = self.outputs.iter().map(|width| Buffer::zeroed(rows * width));
        Tensors { inputs: inputs.collect(), outputs: outputs.collect() }
    }

    /// Of the first output; of most blocks there is no other.
    pub(crate) fn output(&self) -> usize {
        self.outputs.first().copied().unwrap_or(0)
    }
}

impl ReadyGraph {
    /// Tries the graph on zeros. The first run is the slowest: devices prepare weights in it.
    ///
    /// # Errors
    /// If the device does not run it.
    pub(crate) fn tried(graph: Box<dyn Graph>, widths: &Widths, rows: Rows) -> Result<Self, Error> {
        let rows = match rows {
            Rows::Dynamic => TRIAL_ROWS,
            Rows::Static(rows) => rows,
        };
        Self::tried_on(graph, widths.zeros(rows.as_usize()), rows)
    }

    /// The same on zeros of any shape, which are of `rows` rows.
    ///
    /// # Errors
    /// As [`Self::tried`].
    pub(crate) fn tried_on(mut graph: Box<dyn Graph>, zeros: Tensors, rows: Tokens) -> Result<Self, Error> {
        let start = Instant::now();
        graph.run(zeros, TRIAL_LIMIT)?;
        Ok(Self { graph, patience: Patience::new(rows, start.elapsed().into()) })
    }

    /// A graph like one that was tried before.
    pub(crate) fn like(graph: Box<dyn Graph>, patience: Patience) -> Self {
        Self { graph, patience }
    }

    /// How long it may take.
    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// Starts it, and does not wait.
    pub(crate) fn start(&mut self, tensors: Tensors) -> Result<(), Error> {
        self.graph.start(tensors)
    }

    /// Waits for what was started on `rows` rows.
    pub(crate) fn wait(&mut self, rows: usize) -> Result<Vec<Buffer>, Error> {
        self.graph.wait(self.patience.limit(rows))
    }
}
