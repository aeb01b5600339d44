//! How much the lanes wanted their cores and had to wait for them, from one look to the next.
//!
//! A lane whose threads are held up by other programs, or by the server's own threads, is slow for a reason that no peak
//! shows: it holds up its whole team, as long as its threads do not stay away from teams. Those that do wait for nothing, so
//! who replays the record does not see that their teams are smaller.

use duet_device::{CoreTime, CpuLanes};
use duet_driver::LaneTime;
use duet_types::Nanos;

/// Remembers the last look.
pub(crate) struct LaneWatch {
    lanes: CpuLanes,
    last: Vec<Vec<Option<CoreTime>>>,
}

impl LaneWatch {
    pub(crate) fn new(lanes: CpuLanes) -> Self {
        let last = lanes.core_times();
        Self { lanes, last }
    }

    /// What was since the last look, by lane; nothing where the operating system does not say.
    pub(crate) fn look(&mut self) -> Vec<LaneTime> {
        let last = std::mem::replace(&mut self.last, self.lanes.core_times());
        let lanes = self.last.iter().zip(&last).map(|(now, before)| lane_time(now, before));
        lanes.collect::<Option<Vec<LaneTime>>>().unwrap_or_default()
    }
}

/// A lane wants what the busiest of its threads does, and waits while any of them does: they seldom wait together.
fn lane_time(now: &[Option<CoreTime>], before: &[Option<CoreTime>]) -> Option<LaneTime> {
    let mut lane = LaneTime::default();
    for (now, before) in now.iter().zip(before) {
        let CoreTime { ran, waited } = (*now)?.since((*before)?);
        lane.wanted = lane.wanted.max(ran + waited);
        lane.waited += waited;
    }
    Some(LaneTime { waited: Nanos(lane.waited.0.min(lane.wanted.0)), ..lane })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ran: u64, waited: u64) -> Option<CoreTime> {
        Some(CoreTime { ran: Nanos(ran), waited: Nanos(waited) })
    }

    fn lane(wanted: u64, waited: u64) -> Option<LaneTime> {
        Some(LaneTime { wanted: Nanos(wanted), waited: Nanos(waited) })
    }

    #[test]
    fn a_lane_waits_while_any_of_its_threads_does() {
        assert_eq!(lane_time(&[time(190, 10)], &[time(100, 0)]), lane(100, 10));
        assert_eq!(lane_time(&[time(30, 10), time(20, 15)], &[time(0, 0), time(0, 5)]), lane(40, 20));
        assert_eq!(lane_time(&[time(1, 9), time(1, 9)], &[time(0, 0), time(0, 0)]), lane(10, 10));
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        assert_eq!(lane_time(&[None], &[None]), None);
    }
}
