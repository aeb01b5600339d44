//! Drift: how much faster or slower the machine is now than when it was profiled.
//!
//! Machines heat up, share their memory with other programs, and run on battery. A running ratio of measured to
//! predicted time corrects predictions, so that spans keep their bound; it is bounded, so that one outlier (a lane's
//! thread that lost its core) cannot turn predictions upside down.

use duet_types::{Nanos, Stage};

/// Running ratios, one for each stage: they are bound by different parts of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drift {
    ratios: [f64; 3],
}

impl Drift {
    pub(crate) const NONE: Self = Self { ratios: [1.0; 3] };

    /// Takes a measurement into account. `predicted` was corrected already.
    pub(crate) fn learn(&mut self, stage: Stage, predicted: Nanos, measured: Nanos) {
        if predicted.0 == 0 {
            return;
        }
        let ratio = &mut self.ratios[stage as usize];
        let error = (measured.0 as f64 / predicted.0 as f64).clamp(1.0 / STEP_MAX, STEP_MAX);
        *ratio = (*ratio * (1.0 + WEIGHT * (error - 1.0))).clamp(1.0 / RATIO_MAX, RATIO_MAX);
    }

    /// Corrects a prediction.
    pub(crate) fn correct(&self, stage: Stage, predicted: Nanos) -> Nanos {
        Nanos((predicted.0 as f64 * self.ratios[stage as usize]) as u64)
    }

    /// The measured time over the predicted one, lately.
    pub(crate) fn ratio(&self, stage: Stage) -> f64 {
        self.ratios[stage as usize]
    }
}

/// How much one measurement weighs: some dozens of kernels, well below a second, make a new mind.
const WEIGHT: f64 = 0.05;
/// An outlier counts no more than this.
const STEP_MAX: f64 = 2.0;
/// A profile that is off by more was not taken on this machine.
const RATIO_MAX: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_follow_a_machine_that_slows_down() {
        let mut drift = Drift::NONE;
        for _ in 0..200 {
            let predicted = drift.correct(Stage::Decode, Nanos(1_000));
            drift.learn(Stage::Decode, predicted, Nanos(1_500));
        }
        assert!((drift.ratio(Stage::Decode) - 1.5).abs() < 0.01, "{}", drift.ratio(Stage::Decode));
        assert_eq!(drift.correct(Stage::Prefill, Nanos(1_000)), Nanos(1_000));
    }

    #[test]
    fn one_outlier_changes_little() {
        let mut drift = Drift::NONE;
        drift.learn(Stage::Prefill, Nanos(1_000), Nanos(1_000_000));
        assert!(drift.ratio(Stage::Prefill) < 1.06);
    }
}
