//! One block on one device: its compiled graphs, and running rows through them.

use crate::placed::{OffloadError, Target};
use crate::ready::{ReadyGraph, Widths};
use crate::shapes::{Piece, Shapes, cut};
use crate::source::Source;
use duet_graphs::{Block, Ranges, Rows};
use duet_model::forward::{Begun, NotRun};
use duet_runtimes::{Buffer, GraphSource, Tensors};
use duet_types::Tokens;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A block that runs on a device.
#[derive(Debug)]
pub(crate) struct Slot {
    shapes: Vec<Tokens>,
    /// For each shape; one for all rows if there are no shapes. Each runs one inference at a time.
    graphs: Vec<Mutex<ReadyGraph>>,
    widths: Widths,
}

impl Slot {
    /// Makes the block ready for each shape, and tries each graph; its ranges are there if the device wants them.
    pub(crate) fn ready(
        target: &Target<'_>,
        block: &Block,
        ranges: Option<&Ranges>,
        shapes: &Shapes,
    ) -> Result<Self, OffloadError> {
        let (rows, shapes) = match shapes {
            Shapes::Dynamic => (vec![Rows::Dynamic], Vec::new()),
            Shapes::Static(shapes) => (shapes.iter().map(|&rows| Rows::Static(rows)).collect(), shapes.clone()),
        };
        let widths = Widths::of(block);
        let graph = |rows| {
            let graph = Source::of(target, &GraphSource { block, rows, ranges })?.obtain(target)?;
            Ok(Mutex::new(ReadyGraph::tried(graph, &widths, rows)?))
        };
        let graphs = rows.into_iter().map(graph).collect::<Result<Vec<_>, OffloadError>>()?;
        Ok(Self { shapes, graphs, widths })
    }

    /// A block with one graph, of `rows` rows.
    pub(crate) fn of(graph: ReadyGraph, rows: Tokens, widths: Widths) -> Self {
        Self { shapes: vec![rows], graphs: vec![Mutex::new(graph)], widths }
    }

    /// How many rows its graphs compute, padding included, when `rows` are asked for.
    pub(crate) fn padded(&self, rows: usize) -> usize {
        if self.shapes.is_empty() {
            return rows;
        }
        cut(rows, &self.shapes).into_iter().map(|piece| self.shapes[piece.shape].as_usize()).sum()
    }

    /// Runs the block on all rows of its inputs.
    pub(crate) fn run(&self, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
        Box::new(self.begin(inputs, output.len())?).finish(output)
    }

    /// Starts the block on all rows of its inputs, which make `len` floats, and does not wait.
    pub(crate) fn begin(&self, inputs: &[&[f32]], len: usize) -> Result<Started<'_>, NotRun> {
        let (widths, width) = (&self.widths.inputs, self.widths.output());
        let rows = len / width.max(1);
        let fit = inputs.iter().zip(widths).all(|(input, width)| input.len() == rows * width);
        if !fit || inputs.len() != widths.len() || len != rows * width {
            return Err(NotRun::Unsupported(format!("{rows} rows of other widths than the graph's")));
        }
        let pieces =
            if self.shapes.is_empty() { vec![Piece { rows: 0..rows, shape: 0 }] } else { cut(rows, &self.shapes) };
        let mut pieces = pieces.into_iter().map(|piece| self.lend(piece, inputs)).collect::<VecDeque<_>>();
        let first = pieces.pop_front().map(|piece| self.start(piece)).transpose()?;
        Ok(Started { slot: self, first, rest: pieces })
    }

    /// Some rows, with rows of zeros behind them up to those of the graph, in memory that a device may have.
    fn lend(&self, piece: Piece, inputs: &[&[f32]]) -> Lent {
        let rows = self.shapes.get(piece.shape).map_or(piece.rows.len(), |shape| shape.as_usize());
        let lent = inputs.iter().zip(&self.widths.inputs).map(|(input, &width)| {
            let mut buffer = Buffer::zeroed(rows * width);
            let of = piece.rows.start * width..piece.rows.end * width;
            buffer[..of.len()].copy_from_slice(&input[of]);
            Arc::new(buffer)
        });
        let tensors = Tensors { inputs: lent.collect(), outputs: vec![Buffer::zeroed(rows * self.widths.output())] };
        Lent { piece, rows, tensors }
    }

    fn start(&self, Lent { piece, rows, tensors }: Lent) -> Result<Running<'_>, NotRun> {
        let mut graph = self.graphs[piece.shape].lock().unwrap_or_else(PoisonError::into_inner);
        graph.start(tensors).map_err(|error| NotRun::Failed(error.to_string()))?;
        Ok(Running { graph, piece, rows, width: self.widths.output() })
    }
}

/// A piece in memory of its own.
struct Lent {
    piece: Piece,
    /// Those of the graph.
    rows: usize,
    tensors: Tensors,
}

/// A block that was started on its first piece; the others follow when it is waited for, as a graph runs one inference at
/// a time.
pub(crate) struct Started<'a> {
    slot: &'a Slot,
    first: Option<Running<'a>>,
    rest: VecDeque<Lent>,
}

/// A piece on its way through its graph.
struct Running<'a> {
    graph: MutexGuard<'a, ReadyGraph>,
    piece: Piece,
    rows: usize,
    /// Of the output.
    width: usize,
}

impl Running<'_> {
    fn finish(mut self, out: &mut [f32]) -> Result<(), NotRun> {
        let results = self.graph.wait(self.rows).map_err(|error| NotRun::Failed(error.to_string()))?;
        let result = results.first().ok_or_else(|| NotRun::Failed("it gave no result".to_owned()))?;
        let to = &mut out[self.piece.rows.start * self.width..self.piece.rows.end * self.width];
        to.copy_from_slice(&result[..to.len()]);
        Ok(())
    }
}

impl Begun for Started<'_> {
    fn finish(self: Box<Self>, out: &mut [f32]) -> Result<(), NotRun> {
        let Self { slot, first, rest } = *self;
        let Some(first) = first else { return Ok(()) };
        if rest.is_empty() {
            return first.finish(out);
        }
        // Written where they belong when all have come: after an error `out` is as it was.
        let mut all = vec![0.0; out.len()];
        first.finish(&mut all)?;
        rest.into_iter().try_for_each(|piece| slot.start(piece)?.finish(&mut all))?;
        out.copy_from_slice(&all);
        Ok(())
    }
}
