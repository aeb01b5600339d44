//! What a block computes: an interpreter, slow and plain, that emitters and devices are compared with.
//!
//! Values are single precision, sums are taken in double precision, weights are what [`crate::LinearWeights::row`] says:
//! activations are not rounded, so a device that rounds them differs by that.

use crate::block::{Activation, Block, Linear, Norm, Op, ValueId};
use duet_types::Tokens;

/// Why a block cannot run on what was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Not one slice for each input.
    #[error("block {block} takes {wanted} inputs, {found} were given")]
    Inputs {
        /// The block.
        block: String,
        /// Inputs that it has.
        wanted: usize,
        /// Slices.
        found: usize,
    },
    /// A slice that is too long or too short.
    #[error("input {name}: {found} numbers where {rows} rows have {wanted}")]
    Length {
        /// The input.
        name: String,
        /// Rows asked for.
        rows: Tokens,
        /// Numbers that they have.
        wanted: usize,
        /// Numbers given.
        found: usize,
    },
}

/// All values of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    values: Vec<Vec<f32>>,
}

impl Trace {
    /// A value, row by row.
    ///
    /// # Panics
    /// If the value is another block's.
    #[must_use]
    pub fn value(&self, value: ValueId) -> &[f32] {
        &self.values[value.0]
    }

    /// All values, inputs first.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.iter().map(Vec::as_slice)
    }
}

/// Runs the block on `rows` rows; `inputs` are row by row, in the order of the block's. Returns its outputs, in order.
///
/// # Errors
/// If the inputs do not fit the block.
pub fn run(block: &Block, rows: Tokens, inputs: &[&[f32]]) -> Result<Vec<Vec<f32>>, ReferenceError> {
    let trace = trace(block, rows, inputs)?;
    Ok(block.outputs().iter().map(|port| trace.value(port.value).to_vec()).collect())
}

/// As [`run`], with every value on the way.
///
/// # Errors
/// If the inputs do not fit the block.
pub fn trace(block: &Block, rows: Tokens, inputs: &[&[f32]]) -> Result<Trace, ReferenceError> {
    if inputs.len() != block.inputs().len() {
        let (wanted, found) = (block.inputs().len(), inputs.len());
        return Err(ReferenceError::Inputs { block: block.name().to_owned(), wanted, found });
    }
    for (port, input) in block.inputs().iter().zip(inputs) {
        let (wanted, found) = (rows.as_usize().saturating_mul(port.width), input.len());
        if wanted != found {
            return Err(ReferenceError::Length { name: port.name.clone(), rows, wanted, found });
        }
    }
    let mut values: Vec<Vec<f32>> = inputs.iter().map(|input| input.to_vec()).collect();
    for op in block.ops() {
        let result = compute(block, op, &values);
        values.push(result);
    }
    Ok(Trace { values })
}

fn compute(block: &Block, op: &Op, values: &[Vec<f32>]) -> Vec<f32> {
    let value = |id: &ValueId| values[id.0].as_slice();
    let rows = |id: &ValueId| value(id).chunks_exact(block.width(*id));
    match op {
        Op::RmsNorm { input, norm } => rows(input).flat_map(|row| rms_norm(row, norm)).collect(),
        Op::Linear { input, linear } => product(value(input), linear),
        Op::Add { left, right } => value(left).iter().zip(value(right)).map(|(left, right)| left + right).collect(),
        Op::Multiply { left, right } => {
            value(left).iter().zip(value(right)).map(|(left, right)| left * right).collect()
        }
        Op::Activate { input, activation } => value(input).iter().map(|x| activate(*activation, *x)).collect(),
        Op::Slice { input, columns } => rows(input).flat_map(|row| row[columns.clone()].iter().copied()).collect(),
    }
}

fn rms_norm(row: &[f32], norm: &Norm) -> Vec<f32> {
    let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
    let factor = 1.0 / (squares / row.len() as f64 + f64::from(norm.epsilon)).sqrt();
    row.iter().zip(&norm.weight).map(|(x, weight)| (f64::from(*x) * factor * f64::from(*weight)) as f32).collect()
}

fn product(x: &[f32], linear: &Linear) -> Vec<f32> {
    let (inputs, outputs) = (linear.weights.inputs(), linear.weights.outputs());
    let mut result = vec![0.0; x.len() / inputs * outputs];
    let mut weights = vec![0.0; inputs];
    for output in 0..outputs {
        linear.weights.row(output, &mut weights);
        let bias = linear.bias.as_ref().map_or(0.0, |bias| f64::from(bias[output]));
        for (row, result) in x.chunks_exact(inputs).zip(result.chunks_exact_mut(outputs)) {
            result[output] = (dot(row, &weights) + bias) as f32;
        }
    }
    result
}

/// In several sums, so that none waits for the one before: calibrating a model takes some 10¹⁰ of these products.
fn dot(x: &[f32], weights: &[f32]) -> f64 {
    let (x, x_rest) = x.as_chunks::<8>();
    let (weights, weights_rest) = weights.as_chunks::<8>();
    let mut sums = [0.0_f64; 8];
    for (x, weights) in x.iter().zip(weights) {
        for (sum, (x, weight)) in sums.iter_mut().zip(x.iter().zip(weights)) {
            *sum += f64::from(*x) * f64::from(*weight);
        }
    }
    let rest = x_rest.iter().zip(weights_rest).map(|(x, weight)| f64::from(*x) * f64::from(*weight));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

fn activate(activation: Activation, x: f32) -> f32 {
    let x = f64::from(x);
    let result = match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
    };
    result as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::BlockBuilder;
    use crate::weights::{Int8, LinearWeights};

    fn run_op(
        widths: &[usize],
        inputs: &[&[f32]],
        op: impl FnOnce(&mut BlockBuilder, &[ValueId]) -> ValueId,
    ) -> Vec<f32> {
        let ports = widths.iter().enumerate().map(|(index, width)| (format!("x{index}"), *width));
        let (mut builder, values) = BlockBuilder::with_inputs("op", ports);
        let result = op(&mut builder, &values);
        builder.output("y", result);
        let rows = Tokens((inputs[0].len() / widths[0]) as u32);
        run(&builder.finish().unwrap(), rows, inputs).unwrap().remove(0)
    }

    #[test]
    fn operations_come_to_what_was_computed_by_hand() {
        let norm = Norm { weight: vec![1.0, 2.0], epsilon: 0.5 };
        // The mean square of (3, 4) is 12.5, with epsilon 13; the row of zeros stays zero.
        let normed = run_op(&[2], &[&[3.0, 4.0, 0.0, 0.0]], |b, x| b.rms_norm(x[0], norm));
        assert_eq!(normed, [3.0 / 13.0_f32.sqrt(), 8.0 / 13.0_f32.sqrt(), 0.0, 0.0]);

        let weights = LinearWeights::int8(2, Int8 { values: vec![1, 2, 3, -4, 0, 1], scales: vec![0.5, 1.0, 2.0] });
        let linear = Linear { weights: weights.unwrap(), bias: Some(vec![1.0, 0.0, -1.0]) };
        let product = run_op(&[2], &[&[2.0, 1.0, 0.0, -1.0]], |b, x| b.linear(x[0], linear));
        assert_eq!(product, [3.0, 2.0, 1.0, 0.0, 4.0, -3.0]);

        let pair: [&[f32]; 2] = [&[1.0, 2.0], &[3.0, -4.0]];
        assert_eq!(run_op(&[2, 2], &pair, |b, x| b.add(x[0], x[1])), [4.0, -2.0]);
        assert_eq!(run_op(&[2, 2], &pair, |b, x| b.multiply(x[0], x[1])), [3.0, -8.0]);
        let sliced = run_op(&[3], &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], |b, x| b.slice(x[0], 1..3));
        assert_eq!(sliced, [2.0, 3.0, 5.0, 6.0]);
    }

    #[test]
    fn nonlinearities_have_their_known_values() {
        let is_at = |activation, known: [f32; 3]| {
            let found = run_op(&[3], &[&[0.0, 1.0, -1.0]], |b, x| b.activate(x[0], activation));
            found.iter().zip(known).all(|(found, known)| (found - known).abs() < 1e-6)
        };
        // The logistic function of 1, and the tanh approximation of GELU at 1 and -1.
        assert!(is_at(Activation::Silu, [0.0, 0.731_058_6, -0.268_941_4]));
        assert!(is_at(Activation::GeluTanh, [0.0, 0.841_192, -0.158_808]));
    }

    #[test]
    fn inputs_that_do_not_fit_are_refused() {
        let (mut builder, [x]) = BlockBuilder::new("b", [("x", 2)]);
        let y = builder.add(x, x);
        builder.output("y", y);
        let block = builder.finish().unwrap();
        assert!(matches!(run(&block, Tokens(1), &[]), Err(ReferenceError::Inputs { wanted: 1, found: 0, .. })));
        assert!(matches!(
            run(&block, Tokens(2), &[&[0.0; 3]]),
            Err(ReferenceError::Length { wanted: 4, found: 3, .. })
        ));
    }
}
