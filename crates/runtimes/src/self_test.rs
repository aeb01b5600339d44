//! The self-test: a small feed-forward block, as models have it, compiled and run on a device with the options that serving
//! uses, and compared with the reference interpreter.
//!
//! Weights have four bits in groups of 32 with minima, as files of models have them, or eight bits with one scale for each
//! output where the device takes nothing else. So a device that passes takes what it will be given: its options, a fixed
//! shape, integer weights, a norm, a nonlinearity, two sums. Results may be as far from the reference as the device says
//! that its precision explains.

use crate::buffer::{Buffer, Tensors};
use crate::error::Error;
use crate::graph_device::{GraphDevice, GraphSource};
use duet_graphs::{
    Activation, ActivationRule, Block, FeedForward, GatedFeed, Group, Linear, LinearWeights, Norm, Precision, Rows,
    WeightRule, calibrate, reference,
};
use duet_types::{Nanos, Tokens};
use std::sync::Arc;
use std::time::Instant;

/// A self-test that was passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfTest {
    /// How long writing the block down and compiling it took.
    pub compile: Nanos,
    /// How long the second inference took, from lending the memory to having it back; the first one prepares the
    /// device.
    pub inference: Nanos,
    /// How far the results were from the reference: the root mean square of the differences, in that of the results.
    pub off: f64,
}

/// Compiles the block on a device as it is set, runs it twice, and checks what comes out. May take seconds on a device that
/// was not used yet; never longer than compiling takes and 10 s.
///
/// # Errors
/// Whatever keeps the device from it; [`Error::WrongResult`] if it computes something else.
pub fn self_test(device: &dyn GraphDevice) -> Result<SelfTest, Error> {
    let rules = device.rules();
    let block = block(rules.weights);
    let inputs = block.inputs().iter().enumerate();
    let inputs: Vec<Vec<f32>> =
        inputs.map(|(index, port)| numbers(ROWS.as_usize() * port.width, 2.0, index as u32 + 1)).collect();
    let lent: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
    let expected = reference::run(&block, ROWS, &lent).expect("the block has these inputs").concat();
    let ranges = (rules.activations == ActivationRule::Calibrated)
        .then(|| calibrate(&block, ROWS, &lent).expect("small numbers have ranges"));
    let start = Instant::now();
    let source = GraphSource { block: &block, rows: Rows::Static(ROWS), ranges: ranges.as_ref() };
    let mut graph = device.compile_graph(&device.emit(&source)?)?;
    let compile = start.elapsed().into();
    let inputs: Vec<_> = inputs.iter().map(|input| Arc::new(Buffer::from(&**input))).collect();
    let (mut inference, mut off) = (Nanos::ZERO, 0.0);
    for _ in 0..2 {
        let tensors = Tensors { inputs: inputs.clone(), outputs: vec![Buffer::zeroed(expected.len())] };
        let start = Instant::now();
        let results = graph.run(tensors, PATIENCE)?;
        inference = start.elapsed().into();
        off = distance(results.first().map_or(&[], |result| result), &expected);
        if off.is_nan() || off > device.tolerance() {
            return Err(Error::WrongResult { off, tolerance: device.tolerance() });
        }
    }
    Ok(SelfTest { compile, inference, off })
}

/// A device that needs longer for half a million multiplications hangs.
const PATIENCE: Nanos = Nanos(5_000_000_000);
/// Small, and a multiple of what devices with tiles ask for.
const ROWS: Tokens = Tokens(16);
const HIDDEN: usize = 64;
const INNER: usize = 128;

/// A layer's feed-forward block.
fn block(rule: WeightRule) -> Block {
    let precision = match rule {
        WeightRule::Any => Precision::UInt4Minima(Group::Of32),
        WeightRule::PerOutput => Precision::Int8,
    };
    let linear = |inputs: usize, outputs: usize, seed: u32| {
        let weights = numbers(inputs * outputs, 2.0 / (inputs as f32).sqrt(), seed);
        let rows = weights.chunks_exact(inputs);
        Linear::from(LinearWeights::from_rows(inputs, precision, rows).expect("whole groups of small numbers"))
    };
    let weight = numbers(HIDDEN, 0.5, 5).into_iter().map(|weight| 1.0 + weight).collect();
    let feed = GatedFeed {
        gate: linear(HIDDEN, INNER, 6),
        up: linear(HIDDEN, INNER, 7),
        activation: Activation::Silu,
        down: linear(INNER, HIDDEN, 8),
    };
    let parts = FeedForward {
        output: linear(HIDDEN, HIDDEN, 9),
        output_norm: None,
        norm: Norm { weight, epsilon: 1e-5 },
        feed,
        feed_norm: None,
    };
    Block::feed_forward(parts).expect("its widths fit")
}

/// The root mean square of the differences, in that of what was expected; no number if there are too few results.
fn distance(came: &[f32], expected: &[f32]) -> f64 {
    if came.len() != expected.len() {
        return f64::NAN;
    }
    let square = |value: f32| f64::from(value) * f64::from(value);
    let differences: f64 = came.iter().zip(expected).map(|(came, expected)| square(came - expected)).sum();
    let all: f64 = expected.iter().copied().map(square).sum();
    (differences / all).sqrt()
}

/// Numbers within `spread` of zero that look random, the same for the same seed.
fn numbers(count: usize, spread: f32, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        spread * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_are_missing_wrong_or_no_numbers_are_far_off() {
        let expected = numbers(64, 1.0, 3);
        assert!(distance(&expected, &expected) == 0.0);
        assert!(distance(&expected[1..], &expected).is_nan());
        assert!((distance(&[0.0; 64], &expected) - 1.0).abs() < 1e-6, "a device that computes nothing does not pass");
        let mut came = expected.clone();
        came[5] = f32::NAN;
        assert!(distance(&came, &expected).is_nan());
        let doubled: Vec<f32> = expected.iter().map(|value| 2.0 * value).collect();
        assert!((distance(&doubled, &expected) - 1.0).abs() < 1e-6);
    }

    /// Else a device that leaves one of them out would pass: each is many times what any precision explains.
    #[test]
    fn every_part_of_the_block_shows_in_its_results() {
        for rule in [WeightRule::Any, WeightRule::PerOutput] {
            let block = block(rule);
            let [attended, residual] = [1, 2].map(|seed| numbers(ROWS.as_usize() * HIDDEN, 2.0, seed));
            let run = |attended: &[f32], residual: &[f32]| {
                reference::run(&block, ROWS, &[attended, residual]).unwrap().concat()
            };
            let expected = run(&attended, &residual);
            let nothing = vec![0.0; residual.len()];
            assert!(distance(&run(&nothing, &residual), &expected) > 0.3);
            assert!(distance(&run(&attended, &nothing), &expected) > 0.3);
            assert!(distance(&residual, &expected) > 0.3, "the residual stream alone");
        }
    }
}
