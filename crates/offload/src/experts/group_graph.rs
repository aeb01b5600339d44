//! One launch: rows are gathered into their experts' slices, the graph runs, and what it makes of them is scattered to
//! the rows, weighted. (NPUMoE §4.2)
//!
//! Invariant: only slots that hold a row are read; after an error no row has changed.

use crate::ready::{ReadyGraph, Widths};
use duet_model::forward::{BegunLaunch, NotRun, RoutedRows};
use duet_moe::Packing;
use duet_runtimes::{Buffer, Tensors};
use std::sync::{Arc, MutexGuard};

/// A group's graph, and the memory that it is lent.
#[derive(Debug)]
pub(super) struct GroupGraph {
    graph: ReadyGraph,
    widths: Widths,
    capacity: usize,
    inputs: Vec<Arc<Buffer>>,
    outputs: Vec<Buffer>,
}

impl GroupGraph {
    pub(super) fn new(graph: ReadyGraph, widths: Widths, capacity: usize) -> Self {
        let buffers =
            |widths: &[usize]| widths.iter().map(|width| Buffer::zeroed(capacity * width)).collect::<Vec<_>>();
        let (inputs, outputs) = (buffers(&widths.inputs), buffers(&widths.outputs));
        Self { graph, capacity, inputs: inputs.into_iter().map(Arc::new).collect(), outputs, widths }
    }

    /// Gathers rows and starts.
    pub(super) fn start(&mut self, packing: &Packing, normed: &[f32]) -> Result<(), NotRun> {
        for (index, input) in self.inputs.iter_mut().enumerate() {
            let width = self.widths.inputs[index];
            if Arc::get_mut(input).is_none() {
                // A device that never answered has it still.
                *input = Arc::new(Buffer::zeroed(self.capacity * width));
            }
            if let Some(input) = Arc::get_mut(input) {
                packing.gather_slice(index, normed, width, input);
            }
        }
        let mut outputs = std::mem::take(&mut self.outputs);
        if outputs.len() != self.widths.outputs.len() {
            outputs = self.widths.outputs.iter().map(|width| Buffer::zeroed(self.capacity * width)).collect();
        }
        let tensors = Tensors { inputs: self.inputs.clone(), outputs };
        self.graph.start(tensors).map_err(|error| NotRun::Failed(error.to_string()))
    }

    /// Waits for what was started.
    pub(super) fn wait(&mut self) -> Result<&[Buffer], NotRun> {
        self.outputs = self.graph.wait(self.capacity).map_err(|error| NotRun::Failed(error.to_string()))?;
        if self.outputs.len() != self.widths.outputs.len() {
            return Err(NotRun::Failed("it gave too few results".to_owned()));
        }
        Ok(&self.outputs)
    }
}

/// A launch under way.
pub(super) struct Launch<'a> {
    pub(super) graph: MutexGuard<'a, Option<GroupGraph>>,
    pub(super) packing: Packing,
    pub(super) hidden: usize,
}

impl BegunLaunch for Launch<'_> {
    fn finish(mut self: Box<Self>, rows: &mut RoutedRows<'_>) -> Result<(), NotRun> {
        let graph = self.graph.as_mut().ok_or_else(|| NotRun::Failed("the graph is gone".to_owned()))?;
        for (index, results) in graph.wait()?.iter().enumerate() {
            self.packing.scatter_slice(index, results, self.hidden, rows.residual);
        }
        Ok(())
    }
}
