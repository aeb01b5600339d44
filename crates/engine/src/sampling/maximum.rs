//! The largest of many logits, at the speed of reading them.
//!
//! A compiler does not reorder comparisons of floats, so a plain loop for the maximum compares one value after the other;
//! several maxima side by side are what it makes vectors of.

use super::candidates::Candidate;

/// The largest logit and its token; the first of equals. `None` if no logit is above negative infinity. NaN is never
/// larger.
pub(super) fn largest(logits: &[f32]) -> Option<Candidate> {
    let (mut block, mut max) = (0, f32::NEG_INFINITY);
    for (index, values) in logits.chunks(BLOCK).enumerate() {
        let largest = maximum(values);
        if largest > max {
            (block, max) = (index, largest);
        }
    }
    let first = block * BLOCK;
    let within = logits[first..].iter().take(BLOCK).position(|&logit| logit == max && max > f32::NEG_INFINITY);
    within.map(|within| ((first + within) as u32, max))
}

/// The largest value; negative infinity if there is none.
pub(super) fn maximum(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut largest = [f32::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder().iter().copied().fold(f32::NEG_INFINITY, larger);
    for chunk in chunks {
        for (largest, &value) in largest.iter_mut().zip(chunk) {
            *largest = larger(*largest, value);
        }
    }
    largest.into_iter().fold(rest, larger)
}

/// Logits that are looked at together: the place of the largest is looked for in one block only.
pub(super) const BLOCK: usize = 256;
/// Enough side by side for the widest vectors, and for those to wait for each other less.
const LANES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_are_none_are_never_the_largest() {
        assert_eq!(largest(&[]), None);
        assert_eq!(largest(&[f32::NAN, f32::NEG_INFINITY]), None);
        assert_eq!(largest(&[f32::NAN, -1.0, f32::NAN]), Some((1, -1.0)));
        assert_eq!(largest(&[0.0, f32::INFINITY, f32::NAN]), Some((1, f32::INFINITY)));
    }

    proptest! {
        /// Few distinct values over several blocks, so that the first of equals is not the only one.
        #[test]
        fn it_is_the_first_that_a_plain_search_finds(values in prop::collection::vec(0..30_u8, 1..1000)) {
            let logits: Vec<f32> = values.iter().map(|&value| f32::from(value) - 15.0).collect();
            let max = *values.iter().max().unwrap();
            let first = values.iter().position(|&value| value == max).unwrap();
            prop_assert_eq!(largest(&logits), Some((first as u32, f32::from(max) - 15.0)));
        }
    }
}
