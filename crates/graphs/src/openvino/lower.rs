//! Operations of a block as layers.

use super::linear;
use super::network::{Dim, Kind, Network, Tensor};
use crate::block::{Activation, Block, Norm, Op, ValueId};
use crate::shape::{LinearForm, Rows};
use std::ops::Range;

/// The block as a network.
pub(super) fn lower(block: &Block, rows: Rows, form: LinearForm) -> Network {
    let rows = match rows {
        Rows::Static(rows) => Dim::Of(rows.as_usize()),
        Rows::Dynamic => Dim::Any,
    };
    let mut lowering = Lowering { network: Network::new(block.name()), rows, form, values: Vec::new() };
    for port in block.inputs() {
        let input = lowering.network.parameter(&port.name, vec![rows, Dim::Of(port.width)]);
        lowering.values.push(input);
    }
    for op in block.ops() {
        let result = lowering.op(op);
        lowering.values.push(result);
    }
    for port in block.outputs() {
        lowering.network.result(&port.name, &lowering.values[port.value.0]);
    }
    lowering.network
}

struct Lowering {
    network: Network,
    rows: Dim,
    form: LinearForm,
    /// Of the values so far.
    values: Vec<Tensor>,
}

impl Lowering {
    fn op(&mut self, op: &Op) -> Tensor {
        let value = |id: &ValueId| self.values[id.0].clone();
        match op {
            Op::RmsNorm { input, norm } => self.rms_norm(&value(input), norm),
            Op::Linear { input, linear } => linear::lower(&mut self.network, self.form, &self.values[input.0], linear),
            Op::Add { left, right } => binary(&mut self.network, "Add", &value(left), &value(right)),
            Op::Multiply { left, right } => binary(&mut self.network, "Multiply", &value(left), &value(right)),
            Op::Activate { input, activation } => self.activate(&value(input), *activation),
            Op::Slice { input, columns } => self.slice(&value(input), columns),
        }
    }

    /// `x × (1 / √(mean(x²) + ε)) × weight`.
    fn rms_norm(&mut self, x: &Tensor, norm: &Norm) -> Tensor {
        let (network, scalar) = (&mut self.network, vec![self.rows, Dim::Of(1)]);
        let two = network.floats(&[1, 1], &[2.0]);
        let squares = binary(network, "Power", x, &two);
        let axis = network.integers(&[1]);
        let keep = [("keep_dims", "true")];
        let mean = network.layer(Kind::first("ReduceMean"), &keep, &[&squares, &axis], scalar.clone());
        let epsilon = network.floats(&[1, 1], &[norm.epsilon]);
        let sum = binary(network, "Add", &mean, &epsilon);
        let root = network.layer(Kind::first("Sqrt"), &[], &[&sum], scalar);
        let one = network.floats(&[1, 1], &[1.0]);
        let factor = divided(network, &one, &root);
        let unit = binary(network, "Multiply", x, &factor);
        let weight = network.floats(&[1, norm.weight.len()], &norm.weight);
        binary(network, "Multiply", &unit, &weight)
    }

    fn activate(&mut self, x: &Tensor, activation: Activation) -> Tensor {
        let (kind, attributes) = match activation {
            Activation::Silu => (Kind { name: "Swish", opset: "opset4" }, &[][..]),
            Activation::GeluTanh => (Kind { name: "Gelu", opset: "opset7" }, &[("approximation_mode", "TANH")][..]),
        };
        self.network.layer(kind, attributes, &[x], x.dims.clone())
    }

    fn slice(&mut self, x: &Tensor, columns: &Range<usize>) -> Tensor {
        let network = &mut self.network;
        let bounds = [columns.start as i64, columns.end as i64, 1, 1];
        let [start, end, step, axis] = bounds.map(|bound| network.integers(&[bound]));
        let dims = vec![self.rows, Dim::Of(columns.len())];
        network.layer(Kind { name: "Slice", opset: "opset8" }, &[], &[x, &start, &end, &step, &axis], dims)
    }
}

/// An operation element by element; the right operand may have single rows or columns, which stand for all.
pub(super) fn binary(network: &mut Network, name: &'static str, left: &Tensor, right: &Tensor) -> Tensor {
    network.layer(Kind::first(name), BROADCAST, &[left, right], left.dims.clone())
}

/// A quotient whose left operand is a single number.
fn divided(network: &mut Network, left: &Tensor, right: &Tensor) -> Tensor {
    let attributes = [BROADCAST, &[("m_pythondiv", "true")]].concat();
    network.layer(Kind::first("Divide"), &attributes, &[left, right], right.dims.clone())
}

const BROADCAST: &[(&str, &str)] = &[("auto_broadcast", "numpy")];
