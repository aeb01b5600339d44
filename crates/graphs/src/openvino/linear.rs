//! A product: integer weights, what makes numbers of them, and the product itself.

use super::lower::binary;
use super::network::{Dim, Element, Kind, Network, Tensor};
use crate::block::Linear;
use crate::shape::LinearForm;
use crate::weights::{Int4, Int8, LinearWeights, Quants, pack};

/// `x × weightsᵀ + bias`, for `x` of `[rows, inputs]`.
pub(super) fn lower(network: &mut Network, form: LinearForm, x: &Tensor, linear: &Linear) -> Tensor {
    let (rows, outputs) = (x.dims[0], linear.weights.outputs());
    let dims = vec![rows, Dim::Of(outputs)];
    let product = match form {
        LinearForm::MatMul => {
            let weights = dequantized(network, &linear.weights, &[]);
            let attributes = [("transpose_a", "false"), ("transpose_b", "true")];
            network.layer(Kind::first("MatMul"), &attributes, &[x, &weights], dims)
        }
        LinearForm::Convolution => {
            let weights = dequantized(network, &linear.weights, &[1, 1]);
            convolution(network, x, &weights, outputs)
        }
    };
    let Some(bias) = &linear.bias else { return product };
    let bias = network.floats(&[1, outputs], bias);
    binary(network, "Add", &product, &bias)
}

/// Rows are the points of a picture one point high, columns its channels.
fn convolution(network: &mut Network, x: &Tensor, weights: &Tensor, outputs: usize) -> Tensor {
    let (rows, inputs, outputs, one) = (x.dims[0], x.dims[1], Dim::Of(outputs), Dim::Of(1));
    let order = network.integers(&[1, 0]);
    let outer = network.integers(&[0, 2]);
    let transpose = Kind::first("Transpose");
    let columns = network.layer(transpose, &[], &[x, &order], vec![inputs, rows]);
    let picture = network.layer(Kind::first("Unsqueeze"), &[], &[&columns, &outer], vec![one, inputs, one, rows]);
    let dims = vec![one, outputs, one, rows];
    let convolved = network.layer(Kind::first("Convolution"), POINTS, &[&picture, weights], dims);
    let columns = network.layer(Kind::first("Squeeze"), &[], &[&convolved, &outer], vec![outputs, rows]);
    network.layer(transpose, &[], &[&columns, &order], vec![rows, outputs])
}

/// The weights as floats, `[outputs, inputs]` and more dimensions.
fn dequantized(network: &mut Network, weights: &LinearWeights, more: &[usize]) -> Tensor {
    let shape = [&[weights.outputs(), weights.inputs()], more].concat();
    match weights.quants() {
        Quants::Int8(int8) => scaled_rows(network, int8, &shape),
        Quants::Int4(int4) => {
            let groups = scaled_groups(network, int4, weights);
            let sizes: Vec<i64> = shape.iter().map(|size| *size as i64).collect();
            let sizes = network.integers(&sizes);
            let dims = shape.iter().copied().map(Dim::Of).collect();
            network.layer(Kind::first("Reshape"), &[("special_zero", "false")], &[&groups, &sizes], dims)
        }
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

/// `(Convert(values) − Convert(zero points)) × scale`, `[outputs, groups, group]`.
fn scaled_groups(network: &mut Network, int4: &Int4, weights: &LinearWeights) -> Tensor {
    let size = int4.group.size();
    let (outputs, groups) = (weights.outputs(), weights.inputs() / size);
    let element = if int4.zero_points().is_some() { Element::U4 } else { Element::I4 };
    let values = network.constant(element, &[outputs, groups, size], int4.values.iter().copied());
    let mut values = network.converted(&values);
    if let Some(points) = int4.zero_points() {
        let points = network.constant(element, &[outputs, groups, 1], pack(points.iter().copied()));
        let points = network.converted(&points);
        values = binary(network, "Subtract", &values, &points);
    }
    let scales = network.floats(&[outputs, groups, 1], &int4.scales);
    binary(network, "Multiply", &values, &scales)
}

/// A kernel of one point, over every point.
const POINTS: &[(&str, &str)] = &[
    ("strides", "1, 1"),
    ("dilations", "1, 1"),
    ("pads_begin", "0, 0"),
    ("pads_end", "0, 0"),
    ("auto_pad", "explicit"),
];
