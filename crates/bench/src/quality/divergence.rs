//! What rows of logits say: surprise, and divergence from what a reference says.

use duet_types::TokenId;
use serde::Serialize;

/// What the kernels say of one position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// Of each token.
    pub(super) logits: &'a [f32],
    /// The token that came.
    pub(super) next: TokenId,
}

/// What was measured of a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Quality {
    /// Positions that were scored.
    pub n: usize,
    /// `e` to the mean surprise.
    pub perplexity: f64,
    /// Against the reference, if there is one.
    #[serde(flatten)]
    pub divergence: Option<Divergence>,
}

/// How far the kernels are from the reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Divergence {
    /// The reference's perplexity.
    pub base_perplexity: f64,
    /// Mean divergence of a position, in nats.
    pub kld_mean: f64,
    /// All but one in a hundred positions diverge by at most this.
    pub kld_p99: f64,
    /// The most that a position diverges.
    pub kld_max: f64,
    /// The share of positions at which both hold the same token for the likeliest.
    pub same_top: f64,
}

/// Of all positions so far.
#[derive(Debug, Default)]
pub(super) struct Divergences {
    positions: usize,
    surprise: f64,
    base_surprise: f64,
    same_top: usize,
    /// One for each position that was compared.
    klds: Vec<f32>,
}

impl Divergences {
    /// A position without a reference.
    pub(super) fn add_alone(&mut self, row: Row<'_>) {
        self.positions += 1;
        self.surprise += log_total(row.logits) - f64::from(row.logits[row.next.0 as usize]);
    }

    /// A position, and the logarithms of the chances that the reference gives.
    pub(super) fn add(&mut self, row: Row<'_>, expected: &[f32]) {
        self.add_alone(row);
        self.base_surprise -= f64::from(expected[row.next.0 as usize]);
        let total = log_total(row.logits);
        let lost = |(logit, expected): (&f32, &f32)| {
            let expected = f64::from(*expected);
            // What the reference thinks impossible loses nothing.
            if expected < IMPOSSIBLE { 0.0 } else { expected.exp() * (expected - f64::from(*logit) + total) }
        };
        let kld: f64 = row.logits.iter().zip(expected).map(lost).sum();
        self.klds.push(kld as f32);
        self.same_top += usize::from(best(row.logits) == best(expected));
    }

    pub(super) fn quality(&self) -> Quality {
        let n = self.positions as f64;
        let divergence = (!self.klds.is_empty()).then(|| {
            let mut sorted = self.klds.clone();
            sorted.sort_unstable_by(f32::total_cmp);
            let at = |share: f64| f64::from(sorted[((sorted.len() - 1) as f64 * share).round() as usize]);
            Divergence {
                base_perplexity: (self.base_surprise / n).exp(),
                kld_mean: self.klds.iter().map(|kld| f64::from(*kld)).sum::<f64>() / n,
                kld_p99: at(0.99),
                kld_max: at(1.0),
                same_top: self.same_top as f64 / n,
            }
        });
        Quality { n: self.positions, perplexity: (self.surprise / n).exp(), divergence }
    }
}

/// Logits become logarithms of chances.
pub(super) fn log_softmax(logits: &mut [f32]) {
    let total = log_total(logits);
    logits.iter_mut().for_each(|logit| *logit = (f64::from(*logit) - total) as f32);
}

/// The logarithm of the sum of `e` to each.
pub(crate) fn log_total(logits: &[f32]) -> f64 {
    let largest = largest(logits);
    // Sixteen sums, which a processor adds side by side.
    let mut sums = [0.0_f64; 16];
    for part in logits.chunks(sums.len()) {
        sums.iter_mut().zip(part).for_each(|(sum, logit)| *sum += f64::from((logit - largest).exp()));
    }
    f64::from(largest) + sums.iter().sum::<f64>().ln()
}

fn largest(logits: &[f32]) -> f32 {
    logits.iter().fold(f32::NEG_INFINITY, |largest, logit| largest.max(*logit))
}

/// The first of the largest.
fn best(values: &[f32]) -> Option<usize> {
    let largest = largest(values);
    values.iter().position(|value| *value == largest)
}

/// As in llama.cpp's tool.
const IMPOSSIBLE: f64 = -16.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn ln(chances: [f32; 3]) -> Vec<f32> {
        chances.map(f32::ln).to_vec()
    }

    #[test]
    fn divergence_is_what_is_lost_by_believing() {
        let (mut sums, expected) = (Divergences::default(), ln([0.5, 0.25, 0.25]));
        // The same, moved: logits have no zero.
        let same: Vec<f32> = expected.iter().map(|x| x + 7.0).collect();
        sums.add(Row { logits: &same, next: TokenId(1) }, &expected);
        assert!(sums.quality().divergence.unwrap().kld_mean.abs() < 1e-6);
        let other = ln([0.25, 0.5, 0.25]);
        sums.add(Row { logits: &other, next: TokenId(1) }, &expected);
        let quality = sums.quality();
        let divergence = quality.divergence.unwrap();
        let kld = 0.5 * 2.0_f64.ln() + 0.25 * 0.5_f64.ln();
        assert!((divergence.kld_max - kld).abs() < 1e-6 && (divergence.kld_mean - kld / 2.0).abs() < 1e-6);
        assert!((divergence.same_top - 0.5).abs() < 1e-9);
        assert!((divergence.base_perplexity - 4.0).abs() < 1e-5, "{divergence:?}");
        assert!((quality.perplexity - 8.0_f64.sqrt()).abs() < 1e-5, "{}", quality.perplexity);
    }
}
