//! Pearson's χ² test, for tests that draw: whether counts look as if they came with given shares.
//!
//! Draws have fixed seeds, so a test passes always or never. Of right code one test in ten thousand would fail for the
//! seeds alone; such a one is given others.

/// How far counts are from what their shares let expect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChiSquared {
    statistic: f64,
    /// Bins that are free to differ.
    freedom: usize,
}

impl ChiSquared {
    /// Of draws of one distribution. What came though its share is nothing is infinitely far.
    pub(crate) fn of(counts: &[u64], shares: &[f64]) -> Self {
        assert_eq!(counts.len(), shares.len());
        let draws = counts.iter().sum::<u64>() as f64;
        let possible = counts.iter().zip(shares).filter(|(_, share)| **share > 0.0);
        let bins = pooled(possible.map(|(&count, share)| (count as f64, share * draws)).collect());
        let is_impossible = counts.iter().zip(shares).any(|(&count, &share)| count > 0 && share <= 0.0);
        let distance = |&(count, expected): &(f64, f64)| (count - expected).powi(2) / expected;
        let statistic = if is_impossible { f64::INFINITY } else { bins.iter().map(distance).sum() };
        Self { statistic, freedom: bins.len().saturating_sub(1) }
    }

    /// Whether such a distance, or a larger one, comes by chance more often than once in ten thousand times.
    pub(crate) fn fits(self) -> bool {
        self.statistic <= quantile(self.freedom)
    }
}

/// Of independent draws of several distributions.
impl std::iter::Sum for ChiSquared {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            statistic: sum.statistic + one.statistic,
            freedom: sum.freedom + one.freedom,
        })
    }
}

/// Bins, each its count and what was expected: those of which too little is expected are one.
fn pooled(bins: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (mut bins, rare): (Vec<_>, Vec<_>) = bins.into_iter().partition(|&(_, expected)| expected >= EXPECTED_MIN);
    let rest = rare.into_iter().fold((0.0, 0.0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1));
    match bins.iter_mut().min_by(|one, other| one.1.total_cmp(&other.1)) {
        Some(smallest) if rest.1 < EXPECTED_MIN => *smallest = (smallest.0 + rest.0, smallest.1 + rest.1),
        _ => bins.push(rest),
    }
    bins
}

/// What χ² of so many degrees of freedom exceeds once in ten thousand times, by Wilson and Hilferty (1931): up to 4 per
/// cent too large of few degrees, which asks a little less of a test.
fn quantile(freedom: usize) -> f64 {
    // Of one bin nothing but rounding differs.
    if freedom == 0 {
        return 1e-9;
    }
    let spread = 2.0 / (9.0 * freedom as f64);
    freedom as f64 * (1.0 - spread + NORMAL_QUANTILE * spread.sqrt()).powi(3)
}

/// Below this the distance of a bin is not distributed as χ² has it. (Cochran 1954)
const EXPECTED_MIN: f64 = 5.0;
/// What a standard normal variable exceeds once in ten thousand times.
const NORMAL_QUANTILE: f64 = 3.719;

#[test]
fn quantiles_are_those_of_the_tables() {
    for (freedom, exact) in [(3, 21.108), (10, 35.564), (30, 67.633), (100, 161.319)] {
        assert!((quantile(freedom) / exact - 1.0).abs() < 0.04, "{freedom}: {}", quantile(freedom));
    }
}

#[test]
fn counts_fit_their_shares_and_no_others() {
    let fits = |counts: &[u64], shares: &[f64]| ChiSquared::of(counts, shares).fits();
    assert!(fits(&[1007, 1982, 3021, 3990], &[0.1, 0.2, 0.3, 0.4]));
    assert!(!fits(&[1207, 1882, 3021, 3890], &[0.1, 0.2, 0.3, 0.4]));
    assert!(!fits(&[1, 1000, 1000], &[0.0, 0.5, 0.5]), "what cannot come came");
    // Of each of twenty too little is expected to say anything; together they are ten.
    let shares: Vec<f64> = std::iter::repeat_n(0.01 / 20.0, 20).chain([0.49, 0.5]).collect();
    let counts = |of_each: u64| std::iter::repeat_n(of_each, 20).chain([490, 500]).collect::<Vec<u64>>();
    assert!(fits(&counts(1), &shares));
    assert!(!fits(&counts(2), &shares));
}
