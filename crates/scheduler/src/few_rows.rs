//! How passes over a few rows differ from the roofline.
//!
//! Two anchors say how long one row takes and how long a chunk does. Between them a kernel goes in steps: it is flat while
//! its rows fit into one tile of registers, and jumps where another tile begins. A draft's length is decided there, so
//! the steps are measured, size by size, and kept as factors on the roofline's time. (CoordGen §3.4 fills up to the length
//! that saturates the device; this is where that is, and what lies beyond it.)

/// Sizes that are measured.
pub const SIZES: [u32; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32];

/// The place among [`SIZES`] of the largest that is no more than so many rows; none where the roofline is right.
pub(crate) fn place(rows: f64) -> Option<usize> {
    let below = SIZES.partition_point(|&size| f64::from(size) <= rows);
    below.checked_sub(1).filter(|_| rows < BEYOND)
}

/// From here on the roofline is right.
const BEYOND: f64 = 48.0;

/// Measured over predicted time of matrix products of weights, for each of [`SIZES`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct FewRows([f32; SIZES.len()]);

impl FewRows {
    /// The roofline as it is.
    pub const NONE: Self = Self([1.0; SIZES.len()]);

    /// What no machine that does nothing else is below, and beyond.
    pub const LEAST: f32 = 0.01;
    /// See [`Self::LEAST`].
    pub const MOST: f32 = 100.0;

    /// Of measured factors.
    #[must_use]
    pub const fn new(factors: [f32; SIZES.len()]) -> Self {
        Self(factors)
    }

    /// The factor for so many rows: on a straight line between two sizes.
    #[must_use]
    pub fn factor(&self, rows: f64) -> f64 {
        let above = SIZES.partition_point(|&size| f64::from(size) <= rows).max(1);
        let point = |at: usize| SIZES.get(at).map_or((BEYOND, 1.0), |&size| (f64::from(size), f64::from(self.0[at])));
        let ((from, low), (to, high)) = (point(above - 1), point(above));
        if rows >= BEYOND { 1.0 } else { low + (high - low) * ((rows - from) / (to - from)).clamp(0.0, 1.0) }
    }

    /// Whether predictions can be multiplied by these.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        self.0.iter().all(|factor| (Self::LEAST..=Self::MOST).contains(factor))
    }
}

impl Default for FewRows {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_sizes_it_is_a_line_and_beyond_them_nothing() {
        let mut factors = [1.0; SIZES.len()];
        (factors[3], factors[4], factors[15]) = (0.8, 1.2, 1.5);
        let few = FewRows::new(factors);
        for (rows, expected) in [(0.0, 1.0), (4.0, 0.8), (4.5, 1.0), (5.0, 1.2), (32.0, 1.5), (40.0, 1.25), (48.0, 1.0)]
        {
            assert!((few.factor(rows) - expected).abs() < 1e-6, "{rows} rows: {}", few.factor(rows));
        }
        assert_eq!(few.factor(4000.0), 1.0);
    }
}
