//! Operations of a block as nodes between integers.

use super::OnnxError;
use super::grid::Grid;
use super::linear;
use super::messages::Model;
use super::writer::{Floats, Quantized, Setting, Writer};
use crate::block::{Activation, Block, Norm, Op, ValueId};
use crate::ranges::{Range, Ranges};
use crate::shape::{LinearForm, Rows};

/// The block as a model.
pub(super) fn lower(block: &Block, ranges: &Ranges, rows: Rows, form: LinearForm) -> Result<Model, OnnxError> {
    let mut lowering = Lowering { writer: Writer::new(block.name()), form, values: Vec::new() };
    let mut ranges = ranges.values().iter().copied();
    for (port, range) in block.inputs().iter().zip(&mut ranges) {
        let input = lowering.writer.input(&port.name, rows, port.width);
        let input = lowering.writer.quantize(&input, Grid::of(range));
        lowering.values.push(input);
    }
    for (op, range) in block.ops().iter().zip(ranges) {
        let result = lowering.op(op, range)?;
        lowering.values.push(result);
    }
    for port in block.outputs() {
        lowering.writer.output(&port.name, rows, port.width, &lowering.values[port.value.0]);
    }
    Ok(lowering.writer.finish())
}

struct Lowering {
    writer: Writer,
    form: LinearForm,
    /// Of the values so far.
    values: Vec<Quantized>,
}

impl Lowering {
    /// The result of the operation, on the grid of its range.
    fn op(&mut self, op: &Op, range: Range) -> Result<Quantized, OnnxError> {
        let result = match op {
            Op::Linear { input, linear } => {
                return linear::lower(&mut self.writer, self.form, &self.values[input.0], linear, range);
            }
            Op::RmsNorm { input, norm } => self.rms_norm(*input, norm),
            Op::Add { left, right } => self.binary("Add", *left, *right),
            Op::Multiply { left, right } => self.binary("Mul", *left, *right),
            Op::Activate { input, activation: Activation::Silu } => self.silu(*input),
            Op::Activate { input, activation: Activation::GeluTanh } => {
                let x = self.read(*input);
                self.writer.node("Gelu", &[&x.0], &[("approximate", Setting::Text("tanh"))])
            }
            Op::Slice { input, columns } => {
                let x = self.read(*input);
                let bounds = [columns.start as i64, columns.end as i64, 1];
                let [start, end, axis] = bounds.map(|bound| self.writer.integers(&[bound]));
                self.writer.node("Slice", &[&x.0, &start, &end, &axis], &[])
            }
        };
        Ok(self.writer.quantize(&result, Grid::of(range)))
    }

    fn read(&mut self, value: ValueId) -> Floats {
        self.writer.dequantize(&self.values[value.0])
    }

    fn binary(&mut self, op: &str, left: ValueId, right: ValueId) -> Floats {
        let [left, right] = [left, right].map(|value| self.read(value));
        self.writer.node(op, &[&left.0, &right.0], &[])
    }

    /// One node: its squares and their mean would not fit on a grid.
    fn rms_norm(&mut self, input: ValueId, norm: &Norm) -> Floats {
        let x = self.read(input);
        let grid = Grid::of(Range::of(&norm.weight));
        let weight = self.writer.quantized_constant(&[norm.weight.len()], &norm.weight, grid);
        let weight = self.writer.dequantize(&weight);
        let settings = [("axis", Setting::Int(-1)), ("epsilon", Setting::Float(norm.epsilon))];
        self.writer.node("RMSNormalization", &[&x.0, &weight.0], &settings)
    }

    /// `x × sigmoid(x)`; the second factor is between 0 and 1.
    fn silu(&mut self, input: ValueId) -> Floats {
        let x = self.read(input);
        let gate = self.writer.node("Sigmoid", &[&x.0], &[]);
        let gate = self.writer.quantize(&gate, Grid::of(Range::new(0.0, 1.0)));
        let [x, gate] = [self.read(input), self.writer.dequantize(&gate)];
        self.writer.node("Mul", &[&x.0, &gate.0], &[])
    }
}
