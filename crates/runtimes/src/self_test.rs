//! The self-test: a small product, compiled and run on a device, and compared with what it must be.
//!
//! It has a static shape of sixteen, which every device can run. Its numbers are whole and small, so that the result is
//! exact in half precision as well: devices that compute in floats have no tolerance.

use crate::buffer::{Buffer, Tensors};
use crate::error::Error;
use crate::graph_device::Graph;
use crate::product::{reference, whole_numbers};
use duet_types::Nanos;
use std::sync::Arc;
use std::time::Instant;

/// A self-test that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// How long reading and compiling took.
    pub compile: Nanos,
    /// How long the second inference took, from lending the memory to having it back; the first one prepares the
    /// device.
    pub inference: Nanos,
}

/// A product of square matrices: `y = x · wᵀ`, of [`Square::SIZE`] rows, inputs and outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Square {
    /// Rows of inputs.
    pub x: Vec<f32>,
    /// Rows of weights, one for each output.
    pub weights: Vec<f32>,
    /// Rows of outputs.
    pub y: Vec<f32>,
}

impl Square {
    /// Rows, inputs and outputs.
    pub const SIZE: usize = 16;

    /// The product of every self-test.
    #[must_use]
    pub fn of_whole_numbers() -> Self {
        let numbers = |step| whole_numbers(Self::SIZE * Self::SIZE, step);
        let (x, weights) = (numbers(3), numbers(5));
        let y = reference(&x, &weights, Self::SIZE);
        Self { x, weights, y }
    }

    /// Whether `came` is the product, each value within `tolerance`.
    fn check(&self, came: &[f32], tolerance: f32) -> Result<(), Error> {
        // Not `> tolerance`: what is no number is wrong.
        let is_right = |(expected, got): (&f32, &f32)| (expected - got).abs() <= tolerance;
        match self.y.iter().zip(came).position(|pair| !is_right(pair)) {
            None => Ok(()),
            Some(index) => Err(Error::WrongResult { index, expected: self.y[index], got: came[index] }),
        }
    }
}

/// Runs the graph that `compile` makes of [`Square::of_whole_numbers`], twice, and checks what comes out. May take
/// seconds on a device that was not used yet; never longer than compiling takes and 10 s.
///
/// # Errors
/// Whatever keeps the device from it; [`Error::WrongResult`] if it computes something else.
pub fn self_test(
    tolerance: f32,
    compile: impl FnOnce(&Square) -> Result<Box<dyn Graph>, Error>,
) -> Result<SelfTest, Error> {
    let product = Square::of_whole_numbers();
    let start = Instant::now();
    let mut graph = compile(&product)?;
    let compile = start.elapsed().into();
    let x = Arc::new(Buffer::from(&*product.x));
    let mut inference = Nanos::ZERO;
    for _ in 0..2 {
        let tensors = Tensors { inputs: vec![Arc::clone(&x)], outputs: vec![Buffer::zeroed(product.y.len())] };
        let start = Instant::now();
        let results = graph.run(tensors, PATIENCE)?;
        inference = start.elapsed().into();
        product.check(results.first().map_or(&[], |result| result), tolerance)?;
    }
    Ok(SelfTest { compile, inference })
}

/// A device that needs longer for 4096 multiplications hangs.
const PATIENCE: Nanos = Nanos(5_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_found() {
        let product = Square::of_whole_numbers();
        let mut came = product.y.clone();
        assert!(product.check(&came, 0.0).is_ok());
        came[1] += 0.25;
        assert!(product.check(&came, 0.25).is_ok());
        assert!(matches!(product.check(&came, 0.125), Err(Error::WrongResult { index: 1, .. })));
        came[1] = f32::NAN;
        assert!(matches!(product.check(&came, 0.25), Err(Error::WrongResult { index: 1, .. })));
    }

    /// Otherwise a device that computes nothing would pass.
    #[test]
    fn the_product_is_not_zero_and_exact_in_half_precision() {
        let product = Square::of_whole_numbers().y;
        assert!(product.iter().filter(|&&value| value != 0.0).count() > Square::SIZE);
        assert!(product.iter().all(|value| value.abs() <= 256.0 && value.fract() == 0.0));
    }
}
