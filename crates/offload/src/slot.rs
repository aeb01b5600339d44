//! One block on one device: its compiled graphs, and requests that wait to run them.

use crate::placed::OffloadError;
use crate::shapes::{Shapes, cut};
use duet_graphs::{Block, LayoutRules, RowRule, Rows, openvino};
use duet_model::forward::NotRun;
use duet_openvino::{ALIGNMENT, Buffer, CompileOptions, CompiledGraph, Device, InferRequest, Ir};
use duet_types::Tokens;
use std::sync::{Mutex, PoisonError};

/// A block that runs on a device.
#[derive(Debug)]
pub(crate) struct Slot {
    shapes: Vec<Tokens>,
    /// For each shape; one for all rows if there are no shapes.
    graphs: Vec<Graph>,
    /// Widths.
    inputs: Vec<usize>,
    output: usize,
}

/// A compiled graph.
#[derive(Debug)]
struct Graph {
    compiled: CompiledGraph,
    /// Requests that nobody uses now.
    idle: Mutex<Vec<InferRequest>>,
}

impl Slot {
    /// Compiles the block for each shape.
    pub(crate) fn compile(
        device: &Device,
        block: &Block,
        shapes: &Shapes,
        options: &CompileOptions,
    ) -> Result<Self, OffloadError> {
        let (rules, rows, shapes) = match shapes {
            Shapes::Dynamic => (LayoutRules::FREE, vec![Rows::Dynamic], Vec::new()),
            Shapes::Static(shapes) => {
                let rules = LayoutRules { rows: RowRule::StaticMultipleOf(Tokens(1)), ..LayoutRules::FREE };
                (rules, shapes.iter().map(|&rows| Rows::Static(rows)).collect(), shapes.clone())
            }
        };
        let compile = |rows: Rows| {
            let ir = openvino::emit(block, rows, &rules)?;
            let compiled = device.compile(&Ir { xml: &ir.xml, bin: &ir.bin }, options)?;
            Ok(Graph { compiled, idle: Mutex::default() })
        };
        let graphs: Result<Vec<Graph>, OffloadError> = rows.into_iter().map(compile).collect();
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
            return self.graphs.first().map_or(Ok(()), |graph| graph.run(inputs, output));
        }
        for piece in cut(rows, &self.shapes) {
            let of = |input: &[f32], width: usize| input[piece.rows.start * width..piece.rows.end * width].to_vec();
            let inputs: Vec<Vec<f32>> =
                inputs.iter().zip(&self.inputs).map(|(input, &width)| of(input, width)).collect();
            let output = &mut output[piece.rows.start * self.output..piece.rows.end * self.output];
            self.graphs[piece.shape].run_padded(
                &inputs,
                output,
                self.shapes[piece.shape].as_usize(),
                piece.rows.len(),
            )?;
        }
        Ok(())
    }
}

impl Graph {
    /// On memory as it is where the device takes it, else on a copy.
    fn run(&self, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
        let aligned = |values: &[f32]| values.as_ptr().addr().is_multiple_of(ALIGNMENT);
        if inputs.iter().all(|input| aligned(input)) && aligned(output) {
            return self.infer(inputs, output);
        }
        let copies: Vec<Buffer> = inputs.iter().map(|input| copy(input, input.len())).collect();
        let mut result = Buffer::zeroed(output.len());
        self.infer(&copies.iter().map(|copy| &**copy).collect::<Vec<_>>(), &mut result)?;
        output.copy_from_slice(&result);
        Ok(())
    }

    /// On a copy with rows of zeros behind, up to `shape` rows.
    fn run_padded(&self, inputs: &[Vec<f32>], output: &mut [f32], shape: usize, rows: usize) -> Result<(), NotRun> {
        let whole = |len: usize| len / rows * shape;
        let copies: Vec<Buffer> = inputs.iter().map(|input| copy(input, whole(input.len()))).collect();
        let mut result = Buffer::zeroed(whole(output.len()));
        self.infer(&copies.iter().map(|copy| &**copy).collect::<Vec<_>>(), &mut result)?;
        output.copy_from_slice(&result[..output.len()]);
        Ok(())
    }

    fn infer(&self, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), NotRun> {
        let failed = |error: duet_openvino::Error| NotRun::Failed(error.to_string());
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut request = idle.map_or_else(|| self.compiled.request(), Ok).map_err(failed)?;
        // A request that failed is not used again.
        request.run(inputs, &mut [output]).map_err(failed)?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        Ok(())
    }
}

/// A copy that begins where devices want it, with zeros up to `len`.
fn copy(values: &[f32], len: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(len);
    buffer[..values.len()].copy_from_slice(values);
    buffer
}
