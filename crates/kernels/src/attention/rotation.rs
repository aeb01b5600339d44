//! How keys and values of eight bits are turned before they are rounded.
//!
//! A group of dimensions shares a scale, and one dimension much larger than the others, as keys have them, takes their bits.
//! So each group is multiplied by Hadamard's matrix, which makes every number of it a sum of all of them, with signs: all are
//! then about as large. **Invariant:** the matrix is orthonormal, so queries that are turned, too, have the same products with
//! turned keys; and it is its own inverse, so weighted sums of turned values are turned back by it.

use super::layout::GROUP;
use crate::simd::{LANES, Simd};

/// Turns each group of a head, or turns it back. The last group may be half as long.
///
/// # Panics
/// If the head is no multiple of 16 dimensions.
#[inline(always)]
pub(super) fn turn<S: Simd>(s: S, head: &mut [f32]) {
    assert!(head.len().is_multiple_of(LANES));
    for group in head.chunks_mut(GROUP) {
        let (one, root) =
            (group.as_mut_ptr(), s.splat(if group.len() == GROUP { INVERSE_ROOT } else { INVERSE_HALF_ROOT }));
        // SAFETY: a group is one register or two.
        unsafe {
            if group.len() == GROUP {
                let (a, b) = (s.load(one), s.load(one.add(LANES)));
                s.store(one, s.mul(s.hadamard(s.add(a, b)), root));
                s.store(one.add(LANES), s.mul(s.hadamard(s.sub(a, b)), root));
            } else {
                s.store(one, s.mul(s.hadamard(s.load(one)), root));
            }
        }
    }
}

/// One by the root of a group's length, and by that of half a group's.
const INVERSE_ROOT: f32 = 0.176_776_7;
const INVERSE_HALF_ROOT: f32 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::portable::Portable;

    /// 80 dimensions: two groups and a half.
    fn head() -> Vec<f32> {
        (0..80).map(|d| if d == 40 { 50.0 } else { (d as f32 * 0.7).sin() }).collect()
    }

    #[test]
    fn turned_twice_it_is_what_it_was_and_products_stay() {
        let (key, query) = (head(), head().iter().map(|x| 1.0 - x).collect::<Vec<_>>());
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let (mut turned_key, mut turned_query) = (key.clone(), query.clone());
        turn(Portable, &mut turned_key);
        turn(Portable, &mut turned_query);
        let (before, after) = (product(&key, &query), product(&turned_key, &turned_query));
        assert!((before / after - 1.0).abs() < 1e-5, "{before} {after}");
        turn(Portable, &mut turned_key);
        assert!(key.iter().zip(&turned_key).all(|(a, b)| (a - b).abs() < 1e-5), "{turned_key:?}");
    }

    #[test]
    fn what_stands_out_is_shared_by_its_group_alone() {
        let mut head = vec![0.0; 80];
        head[40] = 32.0;
        turn(Portable, &mut head);
        let sizes = head.iter().map(|x| x.abs()).collect::<Vec<_>>();
        assert!(sizes[32..64].iter().all(|size| (size - 32.0_f32.sqrt()).abs() < 1e-5), "{sizes:?}");
        assert!(sizes[..32].iter().chain(&sizes[64..]).all(|size| *size == 0.0), "{sizes:?}");
    }
}
