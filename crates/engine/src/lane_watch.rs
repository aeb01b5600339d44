//! How much of their cores the lanes are given, from one look to the next.
//!
//! A lane whose threads are held up by other programs, or by the server's own threads, is slow for a reason that no peak
//! shows, and it holds up its whole team. What counts is the time in which the lane wanted its cores.

use duet_device::{CoreTime, CpuLanes};

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

    /// What each lane was given since the last look, as a share of what it wanted; nothing for one that hardly wanted
    /// any, or where the operating system does not say.
    pub(crate) fn look(&mut self) -> Vec<Option<f64>> {
        let last = std::mem::replace(&mut self.last, self.lanes.core_times());
        self.last.iter().zip(&last).map(|(now, before)| given(now, before)).collect()
    }
}

/// A lane goes on when all of its threads do.
fn given(now: &[Option<CoreTime>], before: &[Option<CoreTime>]) -> Option<f64> {
    let shares = now.iter().zip(before).map(|(now, before)| share((*now)?, (*before)?));
    shares.collect::<Option<Vec<f64>>>().map(|shares| shares.iter().product())
}

fn share(now: CoreTime, before: CoreTime) -> Option<f64> {
    let ran = now.ran.saturating_sub(before.ran).as_secs_f64();
    let waited = now.waited.saturating_sub(before.waited).as_secs_f64();
    (ran + waited >= WANTED_MIN).then(|| ran / (ran + waited))
}

/// Less than this says nothing: a few wake-ups.
const WANTED_MIN: f64 = 5e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::Nanos;

    fn time(ran: u64, waited: u64) -> Option<CoreTime> {
        Some(CoreTime { ran: Nanos(ran * 1_000_000), waited: Nanos(waited * 1_000_000) })
    }

    #[test]
    fn a_lane_is_given_what_all_of_its_threads_are() {
        assert_eq!(given(&[time(190, 10)], &[time(100, 0)]), Some(0.9));
        assert_eq!(given(&[time(30, 10), time(20, 20)], &[time(0, 0), time(0, 0)]), Some(0.375));
    }

    #[test]
    fn who_wants_nothing_says_nothing() {
        assert_eq!(given(&[time(101, 1)], &[time(100, 0)]), None);
        assert_eq!(given(&[None], &[None]), None);
    }
}
