//! The integers that an activation is rounded to: `scale × (integer − zero point)`, for integers of 16 unsigned bits.

use crate::ranges::Range;

/// A scale and a zero point. The scale is above zero and finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) scale: f32,
    pub(super) zero_point: u16,
}

impl Grid {
    /// The whole range on all integers.
    pub(super) fn of(range: Range) -> Self {
        let scale = range.most() / STEPS - range.least() / STEPS;
        // A value that is always zero, or nearly: any scale does.
        let scale = if scale < f32::MIN_POSITIVE { 1.0 } else { scale };
        let zero_point = (-range.least() / scale).round().clamp(0.0, STEPS) as u16;
        Self { scale, zero_point }
    }

    /// The nearest integer.
    pub(super) fn round(self, number: f32) -> u16 {
        ((number / self.scale).round() + f32::from(self.zero_point)).clamp(0.0, STEPS) as u16
    }
}

const STEPS: f32 = u16::MAX as f32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Half a step, and another half by which the zero point was rounded: at the ends of the range only.
        #[test]
        fn numbers_of_the_range_are_near_an_integer(a in -1e4_f32..1e4, b in -1e4_f32..1e4, at in 0.0_f32..=1.0) {
            let range = Range::of(&[a, b]);
            let grid = Grid::of(range);
            let number = range.least() + at * (range.most() - range.least());
            let found = grid.scale * (f32::from(grid.round(number)) - f32::from(grid.zero_point));
            prop_assert!((found - number).abs() <= 1.01 * grid.scale, "{number} became {found}");
            prop_assert_eq!(grid.round(0.0), grid.zero_point);
        }
    }

    #[test]
    fn nothing_has_a_grid_and_so_has_everything() {
        assert_eq!(Grid::of(Range::default()), Grid { scale: 1.0, zero_point: 0 });
        let all = Grid::of(Range::new(f32::MIN, f32::MAX));
        assert!(all.scale.is_finite());
        assert!(all.zero_point.abs_diff(32767) <= 1);
    }
}
