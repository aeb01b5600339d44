//! When a probe is believed, and when a figure beside it.
//!
//! A ceiling is what the machine can do, and whatever disturbs a probe makes it too low: a core that was just taken away
//! reads as a slow machine. So a ceiling is the best of several short probes, once [`AGREEING`] of them are within
//! [`WITHIN`] of the best; after [`PROBES_MAX`] or [`PROBING_MAX`] it is the best there is, and counts as not settled.
//!
//! A sample stands between two ceilings, and the greater one is its own: no machine does more than it can do. A figure
//! above its own ceiling is a failed measurement, of the one or of the other. It is measured again, [`ATTEMPTS`] times at
//! most; if the last one is above it as well, there is no share, and a note says why.

use crate::samples::median;
use std::time::Duration;

/// Probes that agree on a ceiling.
pub(crate) const AGREEING: usize = 3;
/// Part of the best that agreeing probes may differ by.
pub(crate) const WITHIN: f64 = 0.05;
/// Probes of one ceiling at most.
pub(crate) const PROBES_MAX: usize = 16;
/// Time for the probes of one ceiling: after that no other is begun.
pub(crate) const PROBING_MAX: Duration = Duration::from_millis(500);
/// Samples that are taken of one figure until one is not above its ceiling.
pub(crate) const ATTEMPTS: usize = 3;

/// What several probes come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Peak {
    /// The best of them.
    pub(crate) rate: f64,
    /// Whether enough others agree.
    pub(crate) settled: bool,
}

/// Probes until the rates agree; `elapsed` says how long that has taken.
pub(crate) fn peak(mut probe: impl FnMut() -> f64, mut elapsed: impl FnMut() -> Duration) -> Peak {
    let mut rates = Vec::with_capacity(PROBES_MAX);
    loop {
        rates.push(probe());
        let rate = rates.iter().copied().fold(0.0, f64::max);
        let settled = rates.iter().filter(|&&found| found >= rate * (1.0 - WITHIN)).count() >= AGREEING;
        if settled || rates.len() == PROBES_MAX || elapsed() >= PROBING_MAX {
            return Peak { rate, settled };
        }
    }
}

/// A figure and the ceilings that were found before and after it.
#[derive(Clone, Debug)]
pub(crate) struct Sample<T> {
    /// What was measured.
    pub(crate) value: T,
    /// In the ceilings' unit.
    pub(crate) rate: f64,
    pub(crate) before: Peak,
    pub(crate) after: Peak,
}

/// What a figure is beside its ceiling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Share {
    /// So much of it.
    Of(f64),
    /// More than it, each time.
    Above {
        /// The figure of the last attempt.
        rate: f64,
        /// Its ceiling.
        ceiling: f64,
    },
}

/// Takes samples until one is not above its ceiling. The last one's value is what was measured in any case: only what the
/// machine can do is in doubt.
pub(crate) fn beside<T, E>(mut sample: impl FnMut() -> Result<Sample<T>, E>) -> Result<(T, Share), E> {
    let mut attempt = 1;
    loop {
        let Sample { value, rate, before, after } = sample()?;
        let ceiling = before.rate.max(after.rate);
        if rate <= ceiling && ceiling > 0.0 {
            return Ok((value, Share::Of(rate / ceiling)));
        }
        if attempt == ATTEMPTS {
            return Ok((value, Share::Above { rate, ceiling }));
        }
        attempt += 1;
    }
}

/// The share that several samples come to, or why there is none. `what` names the figure, `unit` its unit in 10⁹,
/// `because` what else it may be than a disturbed probe.
pub(crate) fn overall(shares: &[Share], what: &str, unit: &str, because: &str) -> (Option<f64>, Option<String>) {
    let above: Vec<_> = shares
        .iter()
        .filter_map(|share| match share {
            Share::Of(_) => None,
            Share::Above { rate, ceiling } => Some((rate / 1e9, ceiling / 1e9)),
        })
        .collect();
    let Some((rate, ceiling)) = above.last() else {
        let of = shares.iter().filter_map(|share| if let Share::Of(share) = share { Some(*share) } else { None });
        return (median(of.collect()), None);
    };
    let note = format!(
        "{what} came to {rate:.1} {unit}, above the ceiling of {ceiling:.1} that was probed beside it, in each of \
         {ATTEMPTS} attempts ({} of {} samples): {because}",
        above.len(),
        shares.len()
    );
    (None, Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ceiling that these rates come to, and how many were needed; a probe takes so many milliseconds.
    fn check(rates: &[f64], millis: u64) -> (f64, bool, usize) {
        let taken = std::cell::Cell::new(0);
        let probe = || {
            taken.set(taken.get() + 1);
            rates[(taken.get() - 1) % rates.len()]
        };
        let Peak { rate, settled } = peak(probe, || Duration::from_millis(millis * taken.get() as u64));
        (rate, settled, taken.get())
    }

    #[test]
    fn a_ceiling_is_the_best_of_probes_that_agree() {
        assert_eq!(check(&[444.0, 440.0, 443.0], 1), (444.0, true, 3));
        // Disturbed ones between them do not count.
        assert_eq!(check(&[37.0, 120.0, 444.0, 430.0, 90.0, 439.0], 1), (444.0, true, 6));
        // A machine that is seldom undisturbed: its best probe comes thrice in ten.
        assert_eq!(check(&[37.0, 444.0, 100.0, 200.0], 1), (444.0, true, 10));
        // Just within, and just not within, of the best.
        assert_eq!(check(&[100.0, 95.1, 95.1], 1), (100.0, true, 3));
        assert_eq!(check(&[100.0, 94.9, 94.9], 1), (100.0, true, 7));
        assert_eq!(check(&[37.0, 52.0, 81.0, 120.0, 170.0, 250.0, 350.0, 470.0], 1), (470.0, false, 16));
    }

    #[test]
    fn probing_has_an_end() {
        let rising: Vec<f64> = (0..100).map(|i| 1.1_f64.powi(i)).collect();
        assert_eq!(check(&rising, 1), (rising[15], false, 16));
        assert_eq!(check(&rising, 200), (rising[2], false, 3));
        assert_eq!(check(&rising, 600), (1.0, false, 1));
        assert_eq!(check(&[0.0], 1), (0.0, true, 3));
    }

    /// What samples with these figures between these ceilings come to, and how many were taken.
    fn judged(samples: &[(f64, f64, f64)]) -> (usize, Share) {
        let mut taken = 0;
        let (_, share) = beside(|| {
            let (before, rate, after) = samples[taken];
            taken += 1;
            let peak = |rate| Peak { rate, settled: true };
            Ok::<_, ()>(Sample { value: (), rate, before: peak(before), after: peak(after) })
        })
        .unwrap();
        (taken, share)
    }

    #[test]
    fn a_figure_above_its_ceiling_is_measured_again() {
        assert_eq!(judged(&[(400.0, 200.0, 400.0)]), (1, Share::Of(0.5)));
        // One disturbed probe of two is not the ceiling.
        assert_eq!(judged(&[(37.0, 72.0, 360.0)]), (1, Share::Of(0.2)));
        assert_eq!(judged(&[(37.0, 72.0, 37.0), (37.0, 72.0, 36.0), (360.0, 72.0, 300.0)]), (3, Share::Of(0.2)));
        let suspect = [(37.0, 72.0, 37.0), (30.0, 70.0, 37.0), (40.0, 80.0, 20.0)];
        assert_eq!(judged(&suspect), (3, Share::Above { rate: 80.0, ceiling: 40.0 }));
        // No ceiling at all is none that anything is a share of.
        assert_eq!(judged(&[(0.0, 1.0, 0.0); 3]), (3, Share::Above { rate: 1.0, ceiling: 0.0 }));
    }

    #[test]
    fn one_suspect_sample_is_no_share_and_a_note() {
        let shares = [Share::Of(0.4), Share::Of(0.6), Share::Of(0.5)];
        assert_eq!(overall(&shares, "it", "GB/s", "noise"), (Some(0.5), None));
        let above = Share::Above { rate: 72e9, ceiling: 37e9 };
        let (share, note) = overall(&[Share::Of(0.4), above], "linear layers", "GMAC/s", "noise");
        assert_eq!(share, None);
        assert_eq!(
            note.unwrap(),
            "linear layers came to 72.0 GMAC/s, above the ceiling of 37.0 that was probed beside it, in each of 3 \
             attempts (1 of 2 samples): noise"
        );
        assert_eq!(overall(&[], "it", "GB/s", "noise"), (None, None));
    }
}
