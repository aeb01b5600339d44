//! One block on one device: its compiled graphs, and running rows through them.

use crate::placed::{OffloadError, Target};
use crate::shapes::{Piece, Shapes, cut};
use duet_graphs::{Block, LayoutRules, Rows, openvino};
use duet_model::forward::NotRun;
use duet_openvino::{BlobKey, BlobSource, Buffer, Digest, Graph, Ir, Tensors};
use duet_types::{Nanos, Tokens};
use std::sync::{Arc, Mutex, PoisonError};

/// A block that runs on a device.
#[derive(Debug)]
pub(crate) struct Slot {
    shapes: Vec<Tokens>,
    /// For each shape; one for all rows if there are no shapes. Each runs one inference at a time.
    graphs: Vec<Mutex<Box<dyn Graph>>>,
    /// Widths.
    inputs: Vec<usize>,
    output: usize,
}

impl Slot {
    /// Makes the block ready for each shape.
    pub(crate) fn ready(target: &Target<'_>, block: &Block, shapes: &Shapes) -> Result<Self, OffloadError> {
        let rules = shapes.rules();
        let (rows, shapes) = match shapes {
            Shapes::Dynamic => (vec![Rows::Dynamic], Vec::new()),
            Shapes::Static(shapes) => (shapes.iter().map(|&rows| Rows::Static(rows)).collect(), shapes.clone()),
        };
        let graphs: Result<Vec<_>, OffloadError> =
            rows.into_iter().map(|rows| Ok(Mutex::new(graph(target, block, rows, &rules)?))).collect();
        let inputs = block.inputs().iter().map(|port| port.width).collect();
        let output = block.outputs().first().map_or(0, |port| port.width);
        Ok(Self { shapes, graphs: graphs?, inputs, output })
    }

    /// Runs the block on all rows of its inputs.
    pub(crate) fn run(&self, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
        let rows = output.len() / self.output.max(1);
        let fit = inputs.iter().zip(&self.inputs).all(|(input, width)| input.len() == rows * width);
        if !fit || inputs.len() != self.inputs.len() || output.len() != rows * self.output {
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
        let lent = inputs.iter().zip(&self.inputs).map(|(input, &width)| {
            let mut buffer = Buffer::zeroed(whole * width);
            buffer[..piece.rows.len() * width].copy_from_slice(&input[of(width)]);
            Arc::new(buffer)
        });
        let tensors = Tensors { inputs: lent.collect(), outputs: vec![Buffer::zeroed(whole * self.output)] };
        let mut graph = self.graphs[piece.shape].lock().unwrap_or_else(PoisonError::into_inner);
        let results = graph.run(tensors, LONGEST).map_err(|error| NotRun::Failed(error.to_string()))?;
        let result = results.first().ok_or_else(|| NotRun::Failed("it gave no result".to_owned()))?;
        let (from, to) = (&result[..piece.rows.len() * self.output], &mut output[of(self.output)]);
        to.copy_from_slice(from);
        Ok(())
    }
}

/// The block's graph for so many rows, from the cache or compiled.
fn graph(target: &Target<'_>, block: &Block, rows: Rows, rules: &LayoutRules) -> Result<Box<dyn Graph>, OffloadError> {
    let openvino::Ir { xml, bin } = openvino::emit(block, rows, rules)?;
    let Some(cache) = target.cache else {
        return Ok(target.device.compile_graph(&Ir { xml: &xml, bin: &bin }, target.options)?);
    };
    let shape = match rows {
        Rows::Dynamic => "?".to_owned(),
        Rows::Static(rows) => rows.0.to_string(),
    };
    let block = Digest::of(&[Digest::of(xml.as_bytes()).0, Digest::of(&bin).0].concat());
    let source = BlobSource { model: Digest::of(target.model.as_bytes()), block, shape };
    let key = BlobKey::new(&source, target.device, target.options);
    Ok(cache.obtain(&key, target.device, target.options, || (xml, bin))?.graph)
}

/// A device that has not answered after this long hangs: a chunk of the largest layer is some hundred milliseconds on
/// one core.
const LONGEST: Nanos = Nanos(20_000_000_000);
