//! Weights: `exp((logit - max) / temperature)`, and their sums over a whole vocabulary.
//!
//! The exponential is written so that the compiler vectorises it: a quarter of a million library calls would cost as
//! much as a layer. It has no fused or platform-dependent step, so the same logits give the same weights everywhere.

/// How logits become weights; the likeliest token's weight is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighting {
    max: f32,
    /// Of the temperature.
    inverse: f32,
}

/// Whether a temperature has no finite inverse: 0, and below 2.9e-39. All weight is then the likeliest token's.
pub(crate) fn is_greedy(temperature: f32) -> bool {
    !(1.0 / temperature).is_finite()
}

impl Weighting {
    /// For a temperature that is not greedy ([`is_greedy`]).
    pub(crate) fn new(max: f32, temperature: f32) -> Self {
        Self { max, inverse: 1.0 / temperature }
    }

    /// The weight of one token; 0 for one that is ruled out or not a number.
    pub(crate) fn of(self, logit: f32) -> f32 {
        exp_not_positive((logit - self.max) * self.inverse)
    }

    /// The sum of all weights.
    pub(crate) fn sum(self, logits: &[f32]) -> f64 {
        logits.chunks(BLOCK).map(|block| self.sum_of_block(block)).sum()
    }

    /// The token at `share` (`0.0..1.0`) of the sum of weights, in the order of the vocabulary.
    pub(crate) fn token_at(self, logits: &[f32], share: f64) -> usize {
        let sums: Vec<f64> = logits.chunks(BLOCK).map(|block| self.sum_of_block(block)).collect();
        let mut rest = sums.iter().sum::<f64>() * share;
        let mut last = 0;
        for (index, sum) in sums.iter().enumerate() {
            if rest >= *sum {
                rest -= sum;
                continue;
            }
            let first = index * BLOCK;
            for (offset, &logit) in logits[first..].iter().take(BLOCK).enumerate() {
                let weight = f64::from(self.of(logit));
                if weight > 0.0 {
                    last = first + offset;
                    if rest < weight {
                        return last;
                    }
                    rest -= weight;
                }
            }
        }
        // Only rounding leads here: the last token of some weight is meant.
        last
    }

    fn sum_of_block(self, block: &[f32]) -> f64 {
        let mut sums = [0.0_f32; LANES];
        let chunks = block.chunks_exact(LANES);
        let rest: f32 = chunks.remainder().iter().map(|&logit| self.of(logit)).sum();
        for chunk in chunks {
            for (sum, &logit) in sums.iter_mut().zip(chunk) {
                *sum += self.of(logit);
            }
        }
        f64::from(sums.iter().sum::<f32>() + rest)
    }
}

/// `exp(x)` for `x <= 0` to about 2 units in the last place; 0 for NaN, and below -87, where f32 has no normal number.
fn exp_not_positive(x: f32) -> f32 {
    // Adding and subtracting this rounds to an integer, and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // exp(x) = 2^n * 2^f with f in -0.5..=0.5.
    let scaled = x * std::f32::consts::LOG2_E;
    let rounded = scaled + ROUND;
    let fraction = scaled - (rounded - ROUND);
    // Taylor's series of 2^f: powers of ln 2 over factorials.
    let mut power = 1.540_353_e-4_f32;
    for coefficient in [1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 2.402_265e-1, 6.931_472e-1, 1.0] {
        power = power * fraction + coefficient;
    }
    let result = f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23));
    // False for NaN as well.
    if x >= -87.0 { result } else { 0.0 }
}

/// Enough sums side by side for the widest vectors.
const LANES: usize = 16;
/// Tokens summed in f32 before the sum goes on in f64: few enough that rounding stays below 1e-6.
const BLOCK: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_that_of_f64_to_single_precision() {
        for step in 0..=87_000 {
            let x = -(step as f32) / 1000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_not_positive(x)) - exact).abs() / exact;
            // The argument's own rounding is 87 * 2^-24 at worst.
            assert!(error < 6e-6, "exp({x}) is off by {error:e}");
        }
        assert_eq!(exp_not_positive(0.0), 1.0);
        assert_eq!(exp_not_positive(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_not_positive(f32::NAN), 0.0);
    }

    #[test]
    fn a_share_of_the_sum_names_its_token() {
        let logits = [0.0, f32::NEG_INFINITY, 0.0, f32::NAN, 0.0, 0.0];
        let weighting = Weighting::new(0.0, 1.0);
        let tokens = [0.0, 0.24, 0.26, 0.51, 0.76, 0.999_999_9].map(|share| weighting.token_at(&logits, share));
        assert_eq!(tokens, [0, 0, 2, 4, 5, 5]);
    }
}
