//! A product: integer weights, integer activations, and the product itself.

use super::OnnxError;
use super::grid::Grid;
use super::messages::Element;
use super::writer::{Floats, Quantized, Setting, Writer};
use crate::block::Linear;
use crate::ranges::Range;
use crate::shape::LinearForm;
use crate::weights::{Bits, Grouped, Int8, LinearWeights, Origin, Quants};

/// `x × weightsᵀ + bias` on the grid of its range, for `x` of `[rows, inputs]`.
///
/// A bias is part of the product if it fits in the integers that the product adds up: 32 bits of the units of `x` and
/// the weights. Else it is added afterwards: weights in groups have no such units, and those of a small `x` are small.
pub(super) fn lower(
    writer: &mut Writer,
    form: LinearForm,
    x: &Quantized,
    linear: &Linear,
    range: Range,
) -> Result<Quantized, OnnxError> {
    let weights = &linear.weights;
    if let Some(scale) = weights.quants().scales().iter().find(|scale| **scale <= 0.0) {
        return Err(OnnxError::Scale { scale: *scale });
    }
    if matches!(weights.quants(), Quants::Grouped(Grouped { origin: Origin::Minima(_), .. })) {
        return Err(OnnxError::Minima);
    }
    let grid = Grid::of(range);
    let Some(bias) = &linear.bias else {
        return Ok(product(writer, form, x, weights, None, grid));
    };
    if let Some(units) = units(x, weights, bias) {
        let bias = integer_bias(writer, bias, &units);
        return Ok(product(writer, form, x, weights, Some(bias), grid));
    }
    let biases = Range::of(bias);
    let least = (range.least() - biases.most()).max(f32::MIN);
    let before = Range::new(least, (range.most() - biases.least()).min(f32::MAX));
    let product = product(writer, form, x, weights, None, Grid::of(before));
    let bias = writer.quantized_constant(&[1, bias.len()], bias, Grid::of(biases));
    let [product, bias] = [product, bias].map(|value| writer.dequantize(&value));
    let sum = writer.node("Add", &[&product.0, &bias.0], &[]);
    Ok(writer.quantize(&sum, grid))
}

fn product(
    writer: &mut Writer,
    form: LinearForm,
    x: &Quantized,
    weights: &LinearWeights,
    bias: Option<Floats>,
    grid: Grid,
) -> Quantized {
    match form {
        LinearForm::MatMul => {
            let operands = [writer.dequantize(x), dequantized(writer, weights, &[])];
            let names: Vec<&str> = operands.iter().chain(&bias).map(|operand| operand.0.as_str()).collect();
            let product = writer.node("Gemm", &names, &[("transB", Setting::Int(1))]);
            writer.quantize(&product, grid)
        }
        LinearForm::Convolution => convolution(writer, x, weights, bias, grid),
    }
}

/// Rows are the points of a picture one point high, columns its channels.
fn convolution(
    writer: &mut Writer,
    x: &Quantized,
    weights: &LinearWeights,
    bias: Option<Floats>,
    grid: Grid,
) -> Quantized {
    let outer = writer.integers(&[0, 2]);
    let swapped = [("perm", Setting::Ints(&[1, 0]))];
    let columns = moved(writer, "Transpose", x, &[], &swapped);
    let picture = moved(writer, "Unsqueeze", &columns, &[&outer], &[]);
    let operands = [writer.dequantize(&picture), dequantized(writer, weights, &[1, 1])];
    let names: Vec<&str> = operands.iter().chain(&bias).map(|operand| operand.0.as_str()).collect();
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
        Quants::Grouped(grouped) => groups(writer, grouped, &shape),
    }
}

/// Groups lie along the inputs.
fn groups(writer: &mut Writer, grouped: &Grouped, shape: &[usize]) -> Floats {
    let (size, bits) = (grouped.group.size(), grouped.bits);
    let mut per_group = shape.to_vec();
    per_group[1] /= size;
    let points = grouped.zero_points();
    let element = match (bits, &points) {
        (Bits::Four, None) => Element::Int4,
        (Bits::Four, Some(_)) => Element::Uint4,
        (Bits::Eight, None) => Element::Int8,
        (Bits::Eight, Some(_)) => Element::Uint8,
    };
    let zeros = vec![0; grouped.scales.len().div_ceil(bits.per_byte())];
    let points = points.map_or(zeros, |points| bits.pack(points.into_iter()));
    let values = writer.constant(element, shape, grouped.values.clone());
    let scales = writer.floats(&per_group, &grouped.scales);
    let points = writer.constant(element, &per_group, points);
    let settings = [("axis", Setting::Int(1)), ("block_size", Setting::Int(size as i64))];
    writer.node("DequantizeLinear", &[&values, &scales, &points], &settings)
}

/// What one of each output's integers stands for, if its bias fits in them.
fn units(x: &Quantized, weights: &LinearWeights, bias: &[f32]) -> Option<Vec<f32>> {
    let Quants::Int8(int8) = weights.quants() else { return None };
    let units: Vec<f32> = int8.scales.iter().map(|scale| scale * x.grid.scale).collect();
    let fits = |(bias, unit): (&f32, &f32)| *unit >= f32::MIN_POSITIVE && (bias / unit).abs() <= BIAS_MAX;
    bias.iter().zip(&units).all(fits).then_some(units)
}

fn integer_bias(writer: &mut Writer, bias: &[f32], units: &[f32]) -> Floats {
    let integers = bias.iter().zip(units).flat_map(|(bias, unit)| ((bias / unit).round() as i32).to_le_bytes());
    let integers = writer.constant(Element::Int32, &[bias.len()], integers.collect());
    let units = writer.floats(&[bias.len()], units);
    let zeros = writer.constant(Element::Int32, &[bias.len()], vec![0; 4 * bias.len()]);
    writer.node("DequantizeLinear", &[&integers, &units, &zeros], &[("axis", Setting::Int(0))])
}

/// Half of what 32 bits hold: the other half is for the product.
const BIAS_MAX: f32 = (1 << 30) as f32;
