//! Drift: how much faster or slower the machine is now than when it was profiled.
//!
//! Machines heat up, share their memory with other programs, and run on battery. A running ratio of measured to
//! predicted time corrects predictions, so that spans keep their bound; it is bounded, so that one outlier (a lane's
//! thread that lost its core) cannot turn predictions upside down.
//!
//! Passes that decode and passes that verify are bound by the same part of the machine, and share a ratio. How much longer
//! several rows take than one decides how long drafts are, and a profile that was taken while others used the machine is
//! wrong about exactly that: each number of [few rows](crate::few_rows) has a step of its own beside the ratio, which
//! for one row is none.

use crate::few_rows;
use crate::machine::Bound;
use duet_types::{LaneSet, Nanos, Net, Stage};
use std::collections::BTreeMap;

/// Running ratios: one for each kind of work of each model, since these are bound by different parts of the machine, and
/// each team of executors, so that a device that throttles changes no prediction of another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drift {
    ratios: BTreeMap<(LaneSet, Net, Bound), f64>,
    /// What numbers of few rows, by their place among those that are profiled, take beside that.
    steps: BTreeMap<(LaneSet, Net, usize), f64>,
}

/// What a kernel does, as far as it drifts in another way than others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) net: Net,
    pub(crate) stage: Stage,
    pub(crate) rows: f64,
}

impl Drift {
    /// Takes a measurement on some [executors](crate::Machine::executors) into account. `predicted` was corrected
    /// already.
    pub(crate) fn learn(&mut self, executors: LaneSet, kind: Kind, predicted: Nanos, measured: Nanos) {
        if predicted.0 == 0 {
            return;
        }
        let error = (measured.0 as f64 / predicted.0 as f64).clamp(1.0 / ERROR_MAX, ERROR_MAX);
        let learn = |ratio: &mut f64, most: f64| {
            *ratio = (*ratio * (1.0 + WEIGHT * (error - 1.0))).clamp(1.0 / most, most);
        };
        learn(self.ratios.entry((executors, kind.net, kind.bound())).or_insert(1.0), RATIO_MAX);
        if let Some(step) = kind.step() {
            learn(self.steps.entry((executors, kind.net, step)).or_insert(1.0), STEP_MAX);
        }
    }

    /// Corrects a prediction.
    pub(crate) fn correct(&self, executors: LaneSet, kind: Kind, predicted: Nanos) -> Nanos {
        Nanos((predicted.0 as f64 * self.ratio(executors, kind)) as u64)
    }

    /// The measured time over the predicted one, lately.
    pub(crate) fn ratio(&self, executors: LaneSet, kind: Kind) -> f64 {
        let ratio = self.ratios.get(&(executors, kind.net, kind.bound())).copied().unwrap_or(1.0);
        let step = kind.step().and_then(|step| self.steps.get(&(executors, kind.net, step)));
        ratio * step.copied().unwrap_or(1.0)
    }
}

impl Kind {
    /// What decides how fast it is, as a rule.
    fn bound(self) -> Bound {
        match self.stage {
            Stage::Prefill => Bound::Compute,
            Stage::Decode | Stage::Verify => Bound::Memory,
        }
    }

    /// The place of its rows among the numbers of few rows; none of one row, and of many.
    fn step(self) -> Option<usize> {
        few_rows::place(self.rows).filter(|&place| place > 0 && self.bound() == Bound::Memory)
    }
}

/// How much one measurement weighs: some dozens of kernels, well below a second, make a new mind.
const WEIGHT: f64 = 0.05;
/// An outlier counts no more than this.
const ERROR_MAX: f64 = 2.0;
/// No number of rows is further from the ratio of all.
const STEP_MAX: f64 = 2.0;
/// A profile that is off by more was not taken on this machine.
const RATIO_MAX: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::LaneId;

    const DECODE: Kind = Kind { net: Net::Decoder, stage: Stage::Decode, rows: 1.0 };
    const PREFILL: Kind = Kind { net: Net::Decoder, stage: Stage::Prefill, rows: 512.0 };

    fn verify(rows: f64) -> Kind {
        Kind { stage: Stage::Verify, rows, ..DECODE }
    }

    /// A prediction of a microsecond of something that takes `measured`.
    fn learn(drift: &mut Drift, executors: LaneSet, kind: Kind, measured: u64) {
        let predicted = drift.correct(executors, kind, Nanos(1_000));
        drift.learn(executors, kind, predicted, Nanos(measured));
    }

    #[test]
    fn predictions_follow_an_executor_that_slows_down_and_no_other() {
        let (npu, cores) = (LaneSet::from_iter([LaneId(0)]), LaneSet::from_iter([LaneId(1)]));
        let mut drift = Drift::default();
        (0..200).for_each(|_| learn(&mut drift, npu, DECODE, 1_500));
        assert!((drift.ratio(npu, DECODE) - 1.5).abs() < 0.01, "{}", drift.ratio(npu, DECODE));
        assert_eq!(drift.ratio(npu, verify(5.0)), drift.ratio(npu, DECODE), "drafts are verified as slowly");
        assert_eq!(drift.correct(npu, PREFILL, Nanos(1_000)), Nanos(1_000));
        assert_eq!(drift.correct(cores, DECODE, Nanos(1_000)), Nanos(1_000));
        assert_eq!(drift.correct(npu.union(cores), DECODE, Nanos(1_000)), Nanos(1_000));
    }

    #[test]
    fn a_number_of_rows_that_was_profiled_wrongly_is_known_and_the_machine_is_not_slower_for_it() {
        let cores = LaneSet::first(2);
        let mut drift = Drift::default();
        for _ in 0..400 {
            learn(&mut drift, cores, verify(6.0), 1_600);
            learn(&mut drift, cores, verify(3.0), 800);
            learn(&mut drift, cores, DECODE, 1_000);
        }
        let found = [DECODE, verify(2.0), verify(3.0), verify(6.0)].map(|kind| drift.ratio(cores, kind));
        for (found, expected) in found.iter().zip([1.0, 1.0, 0.8, 1.6]) {
            assert!((found - expected).abs() < 0.05, "{found} {expected}");
        }
        // Then everything slows down, and what is not tried is known to.
        (0..400).for_each(|_| learn(&mut drift, cores, DECODE, 1_500));
        assert!((drift.ratio(cores, verify(6.0)) - 2.4).abs() < 0.1);
    }

    #[test]
    fn rows_between_two_that_are_profiled_count_as_the_lower() {
        let steps = [1.0, 1.9, 2.0, 8.0, 9.0, 10.0, 32.0, 47.0, 48.0].map(|rows| verify(rows).step());
        assert_eq!(steps, [None, None, Some(1), Some(7), Some(7), Some(8), Some(15), Some(15), None]);
        assert_eq!(PREFILL.step(), None);
    }

    #[test]
    fn one_outlier_changes_little() {
        let mut drift = Drift::default();
        drift.learn(LaneSet::first(1), PREFILL, Nanos(1_000), Nanos(1_000_000));
        assert!(drift.ratio(LaneSet::first(1), PREFILL) < 1.06);
    }
}
