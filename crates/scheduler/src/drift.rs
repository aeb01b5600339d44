//! Drift: how much faster or slower the machine is now than when it was profiled.
//!
//! Machines heat up, share their memory with other programs, and run on battery. A running ratio of measured to
//! predicted time corrects predictions, so that spans keep their bound; it is bounded, so that one outlier (a lane's
//! thread that lost its core) cannot turn predictions upside down.

use duet_types::{LaneSet, Nanos, Net, Stage};
use std::collections::BTreeMap;

/// Running ratios: one for each stage of each model, since these are bound by different parts of the machine, and each team of
/// executors, so that a device that throttles changes no prediction of another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drift {
    ratios: BTreeMap<(LaneSet, (Net, Stage)), f64>,
}

impl Drift {
    /// Takes a measurement on some [executors](crate::Machine::executors) into account. `predicted` was corrected
    /// already.
    pub(crate) fn learn(&mut self, executors: LaneSet, kind: (Net, Stage), predicted: Nanos, measured: Nanos) {
        if predicted.0 == 0 {
            return;
        }
        let ratio = self.ratios.entry((executors, kind)).or_insert(1.0);
        let error = (measured.0 as f64 / predicted.0 as f64).clamp(1.0 / STEP_MAX, STEP_MAX);
        *ratio = (*ratio * (1.0 + WEIGHT * (error - 1.0))).clamp(1.0 / RATIO_MAX, RATIO_MAX);
    }

    /// Corrects a prediction.
    pub(crate) fn correct(&self, executors: LaneSet, kind: (Net, Stage), predicted: Nanos) -> Nanos {
        Nanos((predicted.0 as f64 * self.ratio(executors, kind)) as u64)
    }

    /// The measured time over the predicted one, lately.
    pub(crate) fn ratio(&self, executors: LaneSet, kind: (Net, Stage)) -> f64 {
        self.ratios.get(&(executors, kind)).copied().unwrap_or(1.0)
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
    use duet_types::LaneId;

    const DECODE: (Net, Stage) = (Net::Decoder, Stage::Decode);
    const PREFILL: (Net, Stage) = (Net::Decoder, Stage::Prefill);

    #[test]
    fn predictions_follow_an_executor_that_slows_down_and_no_other() {
        let (npu, cores) = (LaneSet::from_iter([LaneId(0)]), LaneSet::from_iter([LaneId(1)]));
        let mut drift = Drift::default();
        for _ in 0..200 {
            let predicted = drift.correct(npu, DECODE, Nanos(1_000));
            drift.learn(npu, DECODE, predicted, Nanos(1_500));
        }
        assert!((drift.ratio(npu, DECODE) - 1.5).abs() < 0.01, "{}", drift.ratio(npu, DECODE));
        assert_eq!(drift.correct(npu, PREFILL, Nanos(1_000)), Nanos(1_000));
        assert_eq!(drift.correct(cores, DECODE, Nanos(1_000)), Nanos(1_000));
        assert_eq!(drift.correct(npu.union(cores), DECODE, Nanos(1_000)), Nanos(1_000));
    }

    #[test]
    fn one_outlier_changes_little() {
        let mut drift = Drift::default();
        drift.learn(LaneSet::first(1), PREFILL, Nanos(1_000), Nanos(1_000_000));
        assert!(drift.ratio(LaneSet::first(1), PREFILL) < 1.06);
    }
}
