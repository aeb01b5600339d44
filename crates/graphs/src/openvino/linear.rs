//! A product: integer weights, what makes numbers of them, and the product itself.
//!
//! Minima become integer zero points, which plugins compute with, and a small product of what they leave over with the
//! sums of the inputs' groups: a zero point that is no integer would make the whole product one of floats.

use super::lower::binary;
use super::network::{Dim, Element, Kind, Network, Tensor};
use crate::block::Linear;
use crate::shape::LinearForm;
use crate::weights::{Bits, Grouped, Int8, LinearWeights, Quants};

/// `x × weightsᵀ + bias`, for `x` of `[rows, inputs]`.
pub(super) fn lower(network: &mut Network, form: LinearForm, x: &Tensor, linear: &Linear) -> Tensor {
    let (weights, outputs) = (&linear.weights, linear.weights.outputs());
    let kernel = match weights.quants() {
        Quants::Int8(int8) => scaled_rows(network, int8, &kernel_shape(weights, form)),
        Quants::Grouped(grouped) => scaled_groups(network, grouped, weights, &kernel_shape(weights, form)),
    };
    let mut result = product(network, form, x, &kernel);
    if let Quants::Grouped(grouped) = weights.quants()
        && let Some(rests) = grouped.rests()
    {
        let groups = weights.inputs() / grouped.group.size();
        let sums = group_sums(network, x, groups, grouped.group.size());
        let rests = network.floats(&[outputs, groups], &rests);
        let rest = product(network, LinearForm::MatMul, &sums, &rests);
        result = binary(network, "Add", &result, &rest);
    }
    if let Some(bias) = &linear.bias {
        let bias = network.floats(&[1, outputs], bias);
        result = binary(network, "Add", &result, &bias);
    }
    result
}

/// `x × kernelᵀ`: `[rows, inputs]` and `[outputs, inputs]` to `[rows, outputs]`.
fn product(network: &mut Network, form: LinearForm, x: &Tensor, kernel: &Tensor) -> Tensor {
    let outputs = kernel.dims[0];
    match form {
        LinearForm::MatMul => {
            let attributes = [("transpose_a", "false"), ("transpose_b", "true")];
            network.layer(Kind::first("MatMul"), &attributes, &[x, kernel], vec![x.dims[0], outputs])
        }
        LinearForm::Convolution => convolution(network, x, kernel, outputs),
    }
}

/// Rows are the points of a picture one point high, columns its channels.
fn convolution(network: &mut Network, x: &Tensor, kernel: &Tensor, outputs: Dim) -> Tensor {
    let (rows, inputs, one) = (x.dims[0], x.dims[1], Dim::Of(1));
    let order = network.integers(&[1, 0]);
    let outer = network.integers(&[0, 2]);
    let transpose = Kind::first("Transpose");
    let columns = network.layer(transpose, &[], &[x, &order], vec![inputs, rows]);
    let picture = network.layer(Kind::first("Unsqueeze"), &[], &[&columns, &outer], vec![one, inputs, one, rows]);
    let dims = vec![one, outputs, one, rows];
    let convolved = network.layer(Kind::first("Convolution"), POINTS, &[&picture, kernel], dims);
    let columns = network.layer(Kind::first("Squeeze"), &[], &[&convolved, &outer], vec![outputs, rows]);
    network.layer(transpose, &[], &[&columns, &order], vec![rows, outputs])
}

/// `[outputs, inputs]` and the dimensions of a point.
fn kernel_shape(weights: &LinearWeights, form: LinearForm) -> Vec<usize> {
    let shape = [weights.outputs(), weights.inputs()];
    match form {
        LinearForm::MatMul => shape.to_vec(),
        LinearForm::Convolution => [shape, [1, 1]].concat(),
    }
}

/// `Convert(values) × scale`, a scale for each row.
fn scaled_rows(network: &mut Network, int8: &Int8, shape: &[usize]) -> Tensor {
    let values = network.constant(Element::I8, shape, int8.values.iter().map(|value| *value as u8));
    let values = network.converted(&values);
    let mut per_row = vec![1; shape.len()];
    per_row[0] = shape[0];
    let scales = network.floats(&per_row, &int8.scales);
    binary(network, "Multiply", &values, &scales)
}

/// `(Convert(values) − Convert(zero points)) × scale`, `[outputs, groups, group]`, in the shape of a kernel.
fn scaled_groups(network: &mut Network, grouped: &Grouped, weights: &LinearWeights, shape: &[usize]) -> Tensor {
    let size = grouped.group.size();
    let (outputs, groups) = (weights.outputs(), weights.inputs() / size);
    let points = grouped.zero_points();
    let element = match (grouped.bits, &points) {
        (Bits::Four, None) => Element::I4,
        (Bits::Four, Some(_)) => Element::U4,
        (Bits::Eight, None) => Element::I8,
        (Bits::Eight, Some(_)) => Element::U8,
    };
    let values = network.constant(element, &[outputs, groups, size], grouped.values.iter().copied());
    let mut values = network.converted(&values);
    if let Some(points) = points {
        let points = network.constant(element, &[outputs, groups, 1], grouped.bits.pack(points.into_iter()));
        let points = network.converted(&points);
        values = binary(network, "Subtract", &values, &points);
    }
    let scales = network.floats(&[outputs, groups, 1], &grouped.scales);
    let scaled = binary(network, "Multiply", &values, &scales);
    let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
    let sizes = network.integers(&sizes);
    let dims = shape.iter().copied().map(Dim::Of).collect();
    network.layer(Kind::first("Reshape"), &[("special_zero", "false")], &[&scaled, &sizes], dims)
}

/// The sums of each group of columns: `[rows, inputs]` to `[rows, groups]`. Products of the same inputs have the same
/// layers here, which plugins run once. Inputs are not rounded for it.
fn group_sums(network: &mut Network, x: &Tensor, groups: usize, size: usize) -> Tensor {
    let rows = x.dims[0];
    let shape = network.integers(&[-1, groups as i64, size as i64]);
    let dims = vec![rows, Dim::Of(groups), Dim::Of(size)];
    let apart = network.layer(Kind::first("Reshape"), &[("special_zero", "false")], &[x, &shape], dims);
    let axis = network.integers(&[2]);
    let sums = vec![rows, Dim::Of(groups)];
    network.layer(Kind::first("ReduceSum"), &[("keep_dims", "false")], &[&apart, &axis], sums)
}

/// A kernel of one point, over every point.
const POINTS: &[(&str, &str)] = &[
    ("strides", "1, 1"),
    ("dilations", "1, 1"),
    ("pads_begin", "0, 0"),
    ("pads_end", "0, 0"),
    ("auto_pad", "explicit"),
];
