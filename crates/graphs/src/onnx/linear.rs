//! A product: integer weights, integer activations, and the product itself.

use super::OnnxError;
use super::grid::Grid;
use super::messages::Element;
use super::writer::{Floats, Quantized, Setting, Writer};
use crate::block::Linear;
use crate::shape::LinearForm;
use crate::weights::{Int4, Int8, LinearWeights, Quants, pack};

/// `x × weightsᵀ + bias` on a grid, for `x` of `[rows, inputs]`.
pub(super) fn lower(
    writer: &mut Writer,
    form: LinearForm,
    x: &Quantized,
    linear: &Linear,
    grid: Grid,
) -> Result<Quantized, OnnxError> {
    let weights = &linear.weights;
    if let Some(scale) = weights.quants().scales().iter().find(|scale| **scale <= 0.0) {
        return Err(OnnxError::Scale { scale: *scale });
    }
    Ok(match form {
        LinearForm::MatMul => {
            let (x_floats, weights_floats) = (writer.dequantize(x), dequantized(writer, weights, &[]));
            let mut inputs = vec![x_floats, weights_floats];
            inputs.extend(bias(writer, x, linear));
            let names: Vec<&str> = inputs.iter().map(|input| input.0.as_str()).collect();
            let product = writer.node("Gemm", &names, &[("transB", Setting::Int(1))]);
            writer.quantize(&product, grid)
        }
        LinearForm::Convolution => convolution(writer, x, linear, grid),
    })
}

/// Rows are the points of a picture one point high, columns its channels.
fn convolution(writer: &mut Writer, x: &Quantized, linear: &Linear, grid: Grid) -> Quantized {
    let outer = writer.integers(&[0, 2]);
    let swapped = [("perm", Setting::Ints(&[1, 0]))];
    let columns = moved(writer, "Transpose", x, &[], &swapped);
    let picture = moved(writer, "Unsqueeze", &columns, &[&outer], &[]);
    let picture = writer.dequantize(&picture);
    let weights = dequantized(writer, &linear.weights, &[1, 1]);
    let mut inputs = vec![picture, weights];
    inputs.extend(bias(writer, x, linear));
    let names: Vec<&str> = inputs.iter().map(|input| input.0.as_str()).collect();
    let convolved = writer.node("Conv", &names, &[("kernel_shape", Setting::Ints(&[1, 1]))]);
    let convolved = writer.quantize(&convolved, grid);
    let columns = moved(writer, "Squeeze", &convolved, &[&outer], &[]);
    moved(writer, "Transpose", &columns, &[], &swapped)
}

/// The same integers in another shape, on the same grid.
fn moved(
    writer: &mut Writer,
    op: &str,
    value: &Quantized,
    more: &[&str],
    settings: &[(&str, Setting<'_>)],
) -> Quantized {
    let floats = writer.dequantize(value);
    let inputs = [&[floats.0.as_str()], more].concat();
    let result = writer.node(op, &inputs, settings);
    writer.quantize(&result, value.grid)
}

/// The weights as floats, `[outputs, inputs]` and more dimensions.
fn dequantized(writer: &mut Writer, weights: &LinearWeights, more: &[usize]) -> Floats {
    let (outputs, inputs) = (weights.outputs(), weights.inputs());
    let shape = [&[outputs, inputs], more].concat();
    match weights.quants() {
        Quants::Int8(Int8 { values, scales }) => {
            let values = writer.constant(Element::Int8, &shape, values.iter().map(|value| *value as u8).collect());
            let scales = writer.floats(&[outputs], scales);
            let zeros = writer.constant(Element::Int8, &[outputs], vec![0; outputs]);
            writer.node("DequantizeLinear", &[&values, &scales, &zeros], &[("axis", Setting::Int(0))])
        }
        Quants::Int4(int4) => groups(writer, int4, &shape),
    }
}

/// Groups lie along the inputs.
fn groups(writer: &mut Writer, int4: &Int4, shape: &[usize]) -> Floats {
    let size = int4.group.size();
    let mut per_group = shape.to_vec();
    per_group[1] /= size;
    let count = int4.scales.len();
    let element = if int4.zero_points().is_some() { Element::Uint4 } else { Element::Int4 };
    let points = int4.zero_points().map_or_else(|| vec![0; count.div_ceil(2)], |points| pack(points.iter().copied()));
    let values = writer.constant(element, shape, int4.values.clone());
    let scales = writer.floats(&per_group, &int4.scales);
    let points = writer.constant(element, &per_group, points);
    let settings = [("axis", Setting::Int(1)), ("block_size", Setting::Int(size as i64))];
    writer.node("DequantizeLinear", &[&values, &scales, &points], &settings)
}

/// The bias as 32-bit integers, in the units of the product of integers; for groups, which have no such units, as
/// floats.
fn bias(writer: &mut Writer, x: &Quantized, linear: &Linear) -> Option<Floats> {
    let bias = linear.bias.as_ref()?;
    let Quants::Int8(int8) = linear.weights.quants() else {
        return Some(Floats(writer.floats(&[bias.len()], bias)));
    };
    let scales: Vec<f32> = int8.scales.iter().map(|scale| scale * x.grid.scale).collect();
    let integers = bias.iter().zip(&scales).flat_map(|(bias, scale)| ((bias / scale).round() as i32).to_le_bytes());
    let integers = writer.constant(Element::Int32, &[bias.len()], integers.collect());
    let zeros = writer.constant(Element::Int32, &[bias.len()], vec![0; 4 * bias.len()]);
    let scales = writer.floats(&[bias.len()], &scales);
    Some(writer.node("DequantizeLinear", &[&integers, &scales, &zeros], &[("axis", Setting::Int(0))]))
}
