//! One block on one device: its compiled graphs, and running rows through them.

use crate::placed::{OffloadError, Target};
use crate::ready::{ReadyGraph, Widths};
use crate::shapes::{Piece, Shapes, cut};
use crate::source::Source;
use duet_graphs::{Block, Ranges, Rows};
use duet_model::forward::NotRun;
use duet_runtimes::{Buffer, GraphSource, Tensors};
use duet_types::Tokens;
use std::sync::{Arc, Mutex, PoisonError};

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

    /// A block with one graph, of so many rows.
    pub(crate) fn of(graph: ReadyGraph, rows: Tokens, widths: Widths) -> Self {
        Self { shapes: vec![rows], graphs: vec![Mutex::new(graph)], widths }
    }

    /// Runs the block on all rows of its inputs.
    pub(crate) fn run(&self, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
        let Widths { inputs: widths, output: width } = &self.widths;
        let rows = output.len() / (*width).max(1);
        let fit = inputs.iter().zip(widths).all(|(input, width)| input.len() == rows * width);
        if !fit || inputs.len() != widths.len() || output.len() != rows * width {
            return Err(NotRun::Unsupported(format!("{rows} rows of other widths than the graph's")));
        }
        if self.shapes.is_empty() {
            return self.run_piece(&Piece { rows: 0..rows, shape: 0 }, rows, inputs, output);
        }
        cut(rows, &self.shapes)
            .iter()
            .try_for_each(|piece| self.run_piece(piece, self.shapes[piece.shape].as_usize(), inputs, output))
    }

    /// Runs some rows, with rows of zeros behind them up to `whole` rows.
    fn run_piece(&self, piece: &Piece, whole: usize, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
        let of = |width: usize| piece.rows.start * width..piece.rows.end * width;
        let lent = inputs.iter().zip(&self.widths.inputs).map(|(input, &width)| {
            let mut buffer = Buffer::zeroed(whole * width);
            buffer[..piece.rows.len() * width].copy_from_slice(&input[of(width)]);
            Arc::new(buffer)
        });
        let width = self.widths.output;
        let tensors = Tensors { inputs: lent.collect(), outputs: vec![Buffer::zeroed(whole * width)] };
        let mut graph = self.graphs[piece.shape].lock().unwrap_or_else(PoisonError::into_inner);
        let results = graph.run(Tokens(whole as u32), tensors).map_err(|error| NotRun::Failed(error.to_string()))?;
        let result = results.first().ok_or_else(|| NotRun::Failed("it gave no result".to_owned()))?;
        let (from, to) = (&result[..piece.rows.len() * width], &mut output[of(width)]);
        to.copy_from_slice(from);
        Ok(())
    }
}
