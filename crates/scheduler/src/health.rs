//! Which lanes can be used: what was heard of their executors, and when a lost one is tried again.
//!
//! An executor that fails or hangs is *lost*: nothing is launched on its lane until a probe of it has come to a good end.
//! The first probe comes a second after the loss, and each that fails doubles the wait, up to a minute or so. One that
//! runs a kernel for much longer than predicted is *slow* until that kernel has ended: what is under way on it goes on,
//! and everything else goes elsewhere. A lane of cores that is lost stays lost: there is nothing to probe.
//!
//! Invariant: this is the only place that says whether a lane is used; nothing beside the scheduler leaves one out.

use duet_types::{Instant, LaneId, LaneSet, Nanos};
use std::collections::BTreeMap;

/// What was heard of the lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    lost: BTreeMap<LaneId, Lost>,
    slow: LaneSet,
    /// Losses in a row, of lanes that came back and have not run a kernel well since.
    failures: BTreeMap<LaneId, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// It is probed then.
    Until(Instant),
    /// A probe is under way.
    Probing,
    ForGood,
}

/// Whether a lost lane is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    Later,
    Never,
}

impl Health {
    /// Lanes that must not be used now.
    pub(crate) fn unusable(&self) -> LaneSet {
        self.lost().union(self.slow)
    }

    /// Lanes whose executors failed.
    pub(crate) fn lost(&self) -> LaneSet {
        self.lost.keys().copied().collect()
    }

    /// An executor failed, or a probe of it did. When it is to be probed.
    pub(crate) fn lose(&mut self, now: Instant, lane: LaneId, probed: Probed) -> Option<Instant> {
        self.slow = self.slow.without(LaneSet::from_iter([lane]));
        if probed == Probed::Never {
            self.lost.insert(lane, Lost::ForGood);
            return None;
        }
        let failures = self.failures.entry(lane).or_default();
        let at = now + Nanos(FIRST_PROBE.0 << (*failures).min(DOUBLINGS));
        *failures = failures.saturating_add(1);
        self.lost.insert(lane, Lost::Until(at));
        Some(at)
    }

    /// A lane takes much longer than predicted.
    pub(crate) fn slow(&mut self, lane: LaneId) {
        self.slow = self.slow.union(LaneSet::from_iter([lane]));
    }

    /// A lane can be used again.
    pub(crate) fn back(&mut self, lane: LaneId) {
        self.slow = self.slow.without(LaneSet::from_iter([lane]));
        self.lost.remove(&lane);
    }

    /// A kernel on these lanes came to a good end: what failed before counts no more, but on lanes that are in trouble.
    pub(crate) fn ran_well(&mut self, lanes: LaneSet) {
        let lanes = lanes.without(self.slow);
        self.failures.retain(|lane, _| !lanes.contains(*lane) || self.lost.contains_key(lane));
    }

    /// The lanes that are to be probed now; each is asked for once.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<LaneId> {
        let is_due = |lost: &Lost| matches!(lost, Lost::Until(at) if *at <= now);
        let due: Vec<LaneId> = self.lost.iter().filter(|(_, lost)| is_due(lost)).map(|(&lane, _)| lane).collect();
        due.iter().for_each(|&lane| {
            self.lost.insert(lane, Lost::Probing);
        });
        due
    }
}

/// After the first failure.
const FIRST_PROBE: Nanos = Nanos(1_000_000_000);
/// Up to a minute or so.
const DOUBLINGS: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(1);

    #[test]
    fn each_failure_in_a_row_doubles_the_wait_up_to_a_minute() {
        let mut health = Health::default();
        let mut now = Instant(0);
        for wait in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            let at = health.lose(now, LANE, Probed::Later).unwrap();
            assert_eq!(at - now, Nanos(wait * 1_000_000_000));
            assert_eq!(health.due(at), [LANE]);
            assert_eq!(health.due(at), [], "one probe at a time");
            now = at;
        }
        health.back(LANE);
        assert!(health.unusable().is_empty());
        health.ran_well(LaneSet::from_iter([LANE]));
        assert_eq!(health.lose(now, LANE, Probed::Later).unwrap() - now, FIRST_PROBE);
    }

    #[test]
    fn a_lane_that_comes_back_and_fails_at_once_is_trusted_less() {
        let mut health = Health::default();
        health.lose(Instant(0), LANE, Probed::Later);
        health.back(LANE);
        assert_eq!(health.lose(Instant(0), LANE, Probed::Later), Some(Instant(2_000_000_000)));
    }

    #[test]
    fn a_slow_lane_is_not_lost_and_lost_cores_are_not_probed() {
        let mut health = Health::default();
        health.slow(LANE);
        assert_eq!((health.unusable().len(), health.lost().len()), (1, 0));
        health.back(LANE);
        assert_eq!(health.lose(Instant(0), LANE, Probed::Never), None);
        assert!(health.due(Instant(u64::MAX)).is_empty() && health.unusable().contains(LANE));
    }
}
