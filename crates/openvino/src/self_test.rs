//! The self-test: a small product, compiled and run on a device, and compared with what it must be.
//!
//! Its numbers are whole and small, so that the result is exact in half precision as well: there is no tolerance. It
//! has a static shape of sixteen, which every device can run.

use crate::buffer::{Buffer, Tensors};
use crate::device::Device;
use crate::error::Error;
use crate::matmul::{MatMul, reference, whole_numbers};
use crate::options::CompileOptions;
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

/// Compiles and runs a product of 16 rows, twice, and checks what comes out. May take seconds on a device that was not
/// used yet; never longer than compiling takes and 10 s.
///
/// # Errors
/// Whatever keeps the device from it; [`Error::WrongResult`] if it computes something else.
pub fn self_test(device: &Device) -> Result<SelfTest, Error> {
    let (x, weights) = (whole_numbers(SIZE * SIZE, 3), whole_numbers(SIZE * SIZE, 5));
    let expected = reference(&x, &weights, SIZE);
    let start = Instant::now();
    let product = MatMul::new(Some(SIZE), SIZE, SIZE, &weights);
    let graph = device.compile(&product.ir(), &CompileOptions::default())?;
    let compile = start.elapsed().into();
    let x = Arc::new(Buffer::from(&*x));
    let mut request = graph.request()?;
    let mut inference = Nanos::ZERO;
    for _ in 0..2 {
        let tensors = Tensors { inputs: vec![Arc::clone(&x)], outputs: vec![Buffer::zeroed(expected.len())] };
        let start = Instant::now();
        let finished = request.start(tensors)?.wait_for(PATIENCE)?;
        inference = start.elapsed().into();
        check(&expected, &finished.outputs[0])?;
        request = finished.request;
    }
    Ok(SelfTest { compile, inference })
}

/// Rows, inputs and outputs.
const SIZE: usize = 16;

/// A device that needs longer for 4096 multiplications hangs.
const PATIENCE: Nanos = Nanos(5_000_000_000);

fn check(expected: &[f32], came: &[f32]) -> Result<(), Error> {
    let wrong = expected.iter().zip(came).position(|(expected, got)| expected != got);
    match wrong {
        None => Ok(()),
        Some(index) => Err(Error::WrongResult { index, expected: expected[index], got: came[index] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_found() {
        assert!(check(&[1.0, 2.0], &[1.0, 2.0]).is_ok());
        let error = check(&[1.0, 2.0], &[1.0, f32::NAN]).unwrap_err();
        assert!(matches!(error, Error::WrongResult { index: 1, .. }), "{error}");
    }

    /// Otherwise a device that computes nothing would pass.
    #[test]
    fn the_product_is_not_zero_and_exact_in_half_precision() {
        let product = reference(&whole_numbers(SIZE * SIZE, 3), &whole_numbers(SIZE * SIZE, 5), SIZE);
        assert!(product.iter().filter(|&&value| value != 0.0).count() > SIZE);
        assert!(product.iter().all(|value| value.abs() <= 256.0 && value.fract() == 0.0));
    }
}
