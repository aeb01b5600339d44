//! The likeliest tokens, without sorting a vocabulary.

use super::maximum::{BLOCK, maximum};

/// A token and its logit.
pub type Candidate = (u32, f32);

/// The `count` largest logits, largest first; of equals the smaller token first. NaN and negative infinity are left
/// out. One pass over the vocabulary; `candidates` is only a buffer.
pub(crate) fn top(logits: &[f32], count: usize, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    if count == 0 {
        return;
    }
    // Twice as many as wanted are gathered before the worse half is thrown out, so each throw pays for `count` pushes.
    let room = count.saturating_mul(2).min(logits.len()).max(1);
    let mut floor = f32::NEG_INFINITY;
    for (block, values) in logits.chunks(BLOCK).enumerate() {
        // Most blocks hold nothing, and their largest is found faster than by looking at each.
        if maximum(values) <= floor {
            continue;
        }
        for (offset, &logit) in values.iter().enumerate() {
            // An equal that comes later is the larger token, and loses.
            if logit > floor {
                candidates.push(((block * BLOCK + offset) as u32, logit));
                if candidates.len() > room {
                    floor = keep_best(candidates, count);
                }
            }
        }
    }
    if candidates.len() > count {
        keep_best(candidates, count);
    }
    candidates.sort_unstable_by(better_first);
}

/// Throws out all but the best `count`; returns the smallest logit left.
fn keep_best(candidates: &mut Vec<Candidate>, count: usize) -> f32 {
    let (_, worst, _) = candidates.select_nth_unstable_by(count - 1, better_first);
    let floor = worst.1;
    candidates.truncate(count);
    floor
}

/// Both zeros are equal, as they are to whoever compares floats: adding the positive one makes them the same.
pub(super) fn better_first(left: &Candidate, right: &Candidate) -> std::cmp::Ordering {
    (right.1 + 0.0).total_cmp(&(left.1 + 0.0)).then(left.0.cmp(&right.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_are_none_are_left_out() {
        let mut candidates = Vec::new();
        top(&[f32::NAN, 2.0, f32::NEG_INFINITY, 2.0, 5.0], 9, &mut candidates);
        assert_eq!(candidates, [(4, 5.0), (1, 2.0), (3, 2.0)]);
    }

    #[test]
    fn both_zeros_are_equal() {
        let mut candidates = Vec::new();
        for count in 1..4 {
            top(&[-0.0, 0.0, -0.0, 0.0], count, &mut candidates);
            assert!(candidates.iter().map(|&(token, _)| token).eq(0..count as u32), "{candidates:?}");
        }
    }

    proptest! {
        /// Few distinct values, so that there are ties at every border.
        #[test]
        fn the_best_are_those_that_a_full_sort_finds(values in prop::collection::vec(0..12_u8, 1..200), count in 0..40_usize) {
            let logits: Vec<f32> = values.iter().map(|&value| f32::from(value)).collect();
            let mut sorted: Vec<Candidate> = logits.iter().enumerate().map(|(t, &l)| (t as u32, l)).collect();
            sorted.sort_by(better_first);
            sorted.truncate(count);
            let mut candidates = vec![(9, 9.0)];
            top(&logits, count, &mut candidates);
            prop_assert_eq!(candidates, sorted);
        }
    }
}
