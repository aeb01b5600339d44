//! Between which numbers each value of a block lies: what a toolchain needs to make its activations integers.
//!
//! Ranges come from calibration: the block is run on inputs of real use, and what its values were is kept. A range holds
//! zero, so that zero stays zero. What lies outside is cut off.

use crate::block::Block;
use crate::reference::{ReferenceError, Trace, trace};
use duet_types::Tokens;

/// The smallest and the largest number that a value takes. `least <= 0 <= most`, both finite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    least: f32,
    most: f32,
}

/// Why numbers are no ranges of a block.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RangeError {
    /// Not one range for each value.
    #[error("block {block} has {wanted} values, and {found} ranges were given: calibrate it again")]
    Count {
        /// The block.
        block: String,
        /// Its values.
        wanted: usize,
        /// Ranges.
        found: usize,
    },
    /// Infinities, or no numbers.
    #[error("value {value} was {least} to {most} in calibration: ranges are to be finite")]
    NotFinite {
        /// The value's number.
        value: usize,
        /// From.
        least: f32,
        /// To.
        most: f32,
    },
}

/// A range for every value of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    values: Vec<Range>,
}

impl Range {
    /// From the one to the other, and zero. Either may be infinite or no number: see [`Ranges::new`].
    #[must_use]
    pub fn new(least: f32, most: f32) -> Self {
        Self { least, most }.with(0.0)
    }

    /// Of these numbers and zero.
    #[must_use]
    pub fn of(numbers: &[f32]) -> Self {
        numbers.iter().fold(Self::default(), |range, number| range.with(*number))
    }

    /// The smallest number.
    #[must_use]
    pub fn least(self) -> f32 {
        self.least
    }

    /// The largest number.
    #[must_use]
    pub fn most(self) -> f32 {
        self.most
    }

    /// Both ranges and what lies between them.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other.least).with(other.most)
    }

    fn with(self, number: f32) -> Self {
        // Neither comparison holds for what is no number, and it stays.
        if number.is_nan() {
            return Self { least: number, most: number };
        }
        Self {
            least: if number < self.least { number } else { self.least },
            most: if number > self.most { number } else { self.most },
        }
    }

    fn is_finite(self) -> bool {
        self.least.is_finite() && self.most.is_finite()
    }
}

impl Ranges {
    /// Ranges that were found before, one for each of [`Block::values`].
    ///
    /// # Errors
    /// If there are more or fewer, or one is not finite.
    pub fn new(block: &Block, values: Vec<Range>) -> Result<Self, RangeError> {
        let ranges = Self { values };
        ranges.check(block)?;
        match ranges.values.iter().position(|range| !range.is_finite()) {
            Some(value) => {
                let Range { least, most } = ranges.values[value];
                Err(RangeError::NotFinite { value, least, most })
            }
            None => Ok(ranges),
        }
    }

    /// Of the values of a run.
    ///
    /// # Errors
    /// If the run is another block's, or a value became infinite.
    pub fn of(block: &Block, trace: &Trace) -> Result<Self, RangeError> {
        Self::new(block, trace.values().map(Range::of).collect())
    }

    /// The ranges, one for each of [`Block::values`].
    #[must_use]
    pub fn values(&self) -> &[Range] {
        &self.values
    }

    /// The ranges of both, which are the same block's.
    ///
    /// # Panics
    /// If one has more values than the other.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        assert!(self.values.len() == other.values.len(), "ranges of different blocks");
        for (range, other) in self.values.iter_mut().zip(&other.values) {
            *range = range.and(*other);
        }
        self
    }

    /// Whether there is a range for each value of the block.
    pub(crate) fn check(&self, block: &Block) -> Result<(), RangeError> {
        let (wanted, found) = (block.values().len(), self.values.len());
        if wanted == found {
            return Ok(());
        }
        Err(RangeError::Count { block: block.name().to_owned(), wanted, found })
    }
}

/// Why a calibration failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CalibrationError {
    /// Inputs that do not fit.
    #[error(transparent)]
    Inputs(#[from] ReferenceError),
    /// Values that do not fit.
    #[error(transparent)]
    Ranges(#[from] RangeError),
}

/// The ranges of a block's values over `rows` rows of inputs, in the order of the block's. Runs it in the reference
/// interpreter, slowly: some hundred rows say enough.
///
/// # Errors
/// If the inputs do not fit the block, or a value becomes infinite.
pub fn calibrate(block: &Block, rows: Tokens, inputs: &[&[f32]]) -> Result<Ranges, CalibrationError> {
    Ok(Ranges::of(block, &trace(block, rows, inputs)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Activation;
    use crate::builder::BlockBuilder;

    fn block() -> Block {
        let (mut builder, [x]) = BlockBuilder::new("b", [("x", 1)]);
        let y = builder.activate(x, Activation::Silu);
        let square = builder.multiply(y, y);
        builder.output("y", square);
        builder.finish().unwrap()
    }

    #[test]
    fn calibration_finds_the_extremes_and_zero() {
        let silu = |x: f32| x / (1.0 + (-x).exp());
        let first = calibrate(&block(), Tokens(2), &[&[2.0, 1.0]]).unwrap();
        assert_eq!(first.values()[0], Range::new(0.0, 2.0));
        let both = first.and(&calibrate(&block(), Tokens(1), &[&[-1.0]]).unwrap());
        assert_eq!(both.values()[0], Range::new(-1.0, 2.0));
        assert!((both.values()[1].least() - silu(-1.0)).abs() < 1e-6);
        assert!((both.values()[2].most() - silu(2.0).powi(2)).abs() < 1e-6);
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        let infinite = calibrate(&block(), Tokens(1), &[&[1e30]]).unwrap_err();
        assert_eq!(infinite.to_string(), "value 2 was 0 to inf in calibration: ranges are to be finite");
        let none = calibrate(&block(), Tokens(2), &[&[f32::NAN, 1.0]]).unwrap_err();
        assert_eq!(none.to_string(), "value 0 was NaN to NaN in calibration: ranges are to be finite");
        let few = Ranges::new(&block(), vec![Range::default()]).unwrap_err();
        assert_eq!(few.to_string(), "block b has 3 values, and 1 ranges were given: calibrate it again");
    }
}
