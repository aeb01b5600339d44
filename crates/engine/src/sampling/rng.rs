//! The engine's source of chance: xoshiro256++, seeded through SplitMix64 (Blackman and Vigna, public domain).
//!
//! Written out because "same seed, same text" must outlive the upgrade of any library.

/// A seeded stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The stream of `seed`.
    pub(crate) fn seeded(seed: u64) -> Self {
        let mut mixed = seed;
        let state = std::array::from_fn(|_| {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mixed;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        Self { state }
    }

    /// The next number of `0.0..1.0`, a multiple of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the authors' C code for the state 1, 2, 3, 4.
    #[test]
    fn the_stream_is_xoshiro256_plus_plus() {
        let mut rng = Rng { state: [1, 2, 3, 4] };
        assert_eq!([rng.next(), rng.next(), rng.next()], [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn units_are_spread_evenly() {
        let mut rng = Rng::seeded(7);
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            tenths[(rng.unit() * 10.0) as usize] += 1;
        }
        // Three standard deviations of a tenth of 100 000 draws are 285.
        assert!(tenths.iter().all(|count| count.abs_diff(10_000) < 400), "{tenths:?}");
    }
}
