//! What a group saves on the accelerator: whether its rows amortise its launch. (NPUMoE §4.3)
//!
//! A group is worth what the CPU would take for the rows that the group has room for, less its launch, its weights and all
//! of its slots: below zero for cold groups and for tiny ones, which the paper leaves to the CPU as well. It is an expectation
//! over mean chunks; that rows beyond capacity let the CPU read an expert's weights all the same is not counted.

use crate::{ExpertId, Group, MoeShape, Times};

/// Nanoseconds of a chunk that a group saves, below zero if it costs more than it saves. `shares` are the parts of the
/// layer's rows that each expert has.
///
/// # Panics
/// If the group has an expert that is not in `shares`.
#[must_use]
pub fn worth(group: &Group, shares: &[f64], shape: &MoeShape, times: &Times) -> f64 {
    let routed = f64::from(shape.chunk.0) * f64::from(shape.chosen);
    let saved = group.experts.iter().map(|expert| {
        let rows = (shares[expert.index()] * routed).min(f64::from(group.capacity.0));
        rows * times.cpu_row.0 as f64 + rows.min(1.0) * times.cpu_weights.0 as f64
    });
    let read = group.experts.len() as f64 * times.weights.0 as f64;
    saved.sum::<f64>() - times.launch.0 as f64 - read - group.slots() as f64 * times.slot.0 as f64
}

/// How far the time that a group saves of one chunk of random rows is off [`worth`]: the variance, of nanoseconds. Rows of an
/// expert vary as much as there are, and those that there is no room for make no difference.
///
/// # Panics
/// As [`worth`].
#[must_use]
pub fn chance(group: &Group, shares: &[f64], shape: &MoeShape, times: &Times) -> f64 {
    let routed = f64::from(shape.chunk.0) * f64::from(shape.chosen);
    let rows = |expert: &ExpertId| (shares[expert.index()] * routed).min(f64::from(group.capacity.0));
    group.experts.iter().map(rows).sum::<f64>() * (times.cpu_row.0 as f64).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{device, shape};
    use duet_types::Tokens;

    #[test]
    fn demand_amortises_a_launch_and_a_small_group_does_not() {
        let times = device().times;
        let group = |capacity, experts: u32| Group {
            capacity: Tokens(capacity),
            experts: (0..experts).map(ExpertId).collect(),
        };
        // 32 rows each, by 16 experts: (32 × 20 + 100) × 4 - 500 - 128 × 5.
        let even = [1.0 / 16.0; 16];
        assert!((worth(&group(32, 4), &even, &shape(), &times) - 1820.0).abs() < 1e-6);
        let cold = [1.0 / 512.0; 16];
        assert!(worth(&group(16, 4), &cold, &shape(), &times) < 0.0);
        let slow = Times { launch: duet_types::Nanos(1000), ..times };
        assert!(worth(&group(32, 1), &even, &shape(), &slow) < 0.0);
        assert!(worth(&group(32, 2), &even, &shape(), &slow) > 0.0, "together they amortise what one alone does not");
        let reading = Times { weights: duet_types::Nanos(400), ..times };
        assert!((worth(&group(32, 4), &even, &shape(), &reading) - 220.0).abs() < 1e-6, "weights are read for each");
    }

    /// As many rows vary by their root: two experts of 32 rows of 20 ns are 8 rows off, and 4 if there is room for 8 each.
    #[test]
    fn chance_is_that_of_so_many_rows() {
        let deviation = |capacity| {
            let group = Group { capacity: Tokens(capacity), experts: vec![ExpertId(0), ExpertId(1)] };
            chance(&group, &[1.0 / 16.0; 16], &shape(), &device().times).sqrt()
        };
        assert!((deviation(48) - 8.0 * 20.0).abs() < 1e-6, "{}", deviation(48));
        assert!((deviation(8) - 4.0 * 20.0).abs() < 1e-6, "{}", deviation(8));
    }

    #[test]
    fn what_there_is_no_room_for_is_worth_nothing() {
        let group = Group { capacity: Tokens(16), experts: vec![ExpertId(0)] };
        let (full, over) = (
            worth(&group, &[16.0 / 512.0], &shape(), &device().times),
            worth(&group, &[0.9], &shape(), &device().times),
        );
        assert!((full - over).abs() < 1e-6);
    }
}
