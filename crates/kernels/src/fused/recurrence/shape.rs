//! What a recurrence is like, and how wide what belongs to it is.

use crate::fused::TAPS_MAX;
use crate::packed::PANEL;
use crate::simd::LANES;

/// What a recurrence is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrenceShape {
    /// What a row does to a matrix.
    pub rule: Rule,
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Heads of values, each with a matrix.
    pub heads: usize,
    /// Dimensions of a key, in whole registers.
    pub keys: usize,
    /// Dimensions of a value, in whole registers.
    pub values: usize,
    /// Which key head a head has.
    pub sharing: Sharing,
    /// Taps of the convolution.
    pub taps: usize,
}

/// What a row does to a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What its key finds is taken off the value first.
    Delta,
    /// The value is added as it is.
    Sum,
}

/// Which heads share a key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Those that follow each other.
    Neighbours,
    /// They take turns.
    Turns,
}

impl RecurrenceShape {
    /// Columns that the convolution goes over: queries, keys, values.
    #[must_use]
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.keys + self.width()
    }

    /// All values side by side, as many as there are gates and results.
    #[must_use]
    pub fn width(&self) -> usize {
        self.heads * self.values
    }

    /// What a row is projected to: what is convolved, gates, and numbers of each head (the strength's of all, where there are
    /// any, before the step's).
    #[must_use]
    pub fn projected(&self) -> usize {
        self.channels() + self.width() + self.numbers()
    }

    pub(super) fn numbers(&self) -> usize {
        match self.rule {
            Rule::Delta => 2 * self.heads,
            Rule::Sum => self.heads,
        }
    }

    /// Floats of what matrices take of a row: what was convolved; of each head its decay, and of each its strength.
    #[must_use]
    pub fn inputs(&self) -> usize {
        (self.channels() + 2 * self.heads).next_multiple_of(PANEL)
    }

    /// Floats of all matrices of a layer.
    #[must_use]
    pub fn matrices(&self) -> usize {
        self.heads * self.matrix()
    }

    pub(super) fn matrix(&self) -> usize {
        self.keys * self.values
    }

    /// Floats of the columns that the convolution reads of positions before.
    #[must_use]
    pub fn columns(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    /// Multiply-accumulates of a row.
    #[must_use]
    pub fn macs(&self) -> usize {
        3 * self.matrices() + self.taps * self.channels()
    }

    pub(super) fn key_head(&self, head: usize) -> usize {
        match self.sharing {
            Sharing::Neighbours => head / (self.heads / self.key_heads),
            Sharing::Turns => head % self.key_heads,
        }
    }

    pub(super) fn check(&self) {
        assert!(self.key_heads > 0 && self.heads.is_multiple_of(self.key_heads));
        assert!(self.keys.is_multiple_of(LANES) && self.values.is_multiple_of(LANES));
        assert!((1..=TAPS_MAX).contains(&self.taps));
    }
}
