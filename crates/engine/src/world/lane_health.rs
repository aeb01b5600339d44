//! What the world hears of devices: kernels that last much too long, failures, and what probes find.
//!
//! A kernel on a device's lane is watched from its launch. One that lasts for several times its prediction makes its lane
//! slow until it has ended; what comes of it is its executor's to say. A device that failed has lost its lane from the end
//! of the kernel that it failed in; the scheduler asks for probes, which are jobs on the lane's own thread.
//!
//! Invariant: nothing is decided here; every change is an event of the scheduler's.

use super::EngineWorld;
use crate::backend::Backend;
use crate::past::OnLanes;
use duet_scheduler::{Event, Kernel};
use duet_types::{Instant, KernelId, LaneId, LaneSet, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kernels on devices' lanes.
#[derive(Debug, Default)]
pub(super) struct Watched {
    kernels: BTreeMap<KernelId, Watch>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    lanes: LaneSet,
    until: Instant,
    pace: Pace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    AsPredicted,
    Slow,
}

impl Watched {
    /// A kernel goes to a device's lane. Until when it is not slow.
    fn begin(&mut self, now: Instant, lanes: LaneSet, kernel: &Kernel) -> Instant {
        let until = now + Nanos(kernel.predicted.0.saturating_mul(TIMES)) + LEAST;
        self.kernels.insert(kernel.id, Watch { lanes, until, pace: Pace::AsPredicted });
        until
    }

    /// Lanes that have become slow.
    fn late(&mut self, now: Instant) -> LaneSet {
        let late = self.kernels.values_mut().filter(|watch| watch.until <= now && watch.pace == Pace::AsPredicted);
        late.fold(LaneSet::EMPTY, |all, watch| {
            watch.pace = Pace::Slow;
            all.union(watch.lanes)
        })
    }

    /// A kernel has ended. The lanes that were slow with it.
    fn end(&mut self, kernel: KernelId) -> LaneSet {
        let ended = self.kernels.remove(&kernel).filter(|watch| watch.pace == Pace::Slow);
        ended.map(|watch| watch.lanes).unwrap_or_default()
    }

    /// They are kernels of a scheduler that failed.
    pub(super) fn forget(&mut self) {
        self.kernels.clear();
    }
}

impl<B: Backend> EngineWorld<B> {
    /// A kernel is launched.
    pub(super) fn watch(&mut self, now: Instant, lanes: LaneSet, kernel: &Kernel) {
        let devices = self.device_lanes(lanes);
        if devices.is_empty() {
            return;
        }
        let until = self.watched.begin(now, devices, kernel);
        if let Some(timer) = self.helpers.as_ref().and_then(|helpers| helpers.watch.as_ref()) {
            timer.set(until);
        }
    }

    /// Some time has come at which a kernel may be late.
    pub(crate) fn look_for_slow(&mut self, now: Instant) {
        for lane in self.watched.late(now).iter() {
            tracing::warn!("lane {lane} takes much longer than predicted, others do its work meanwhile");
            self.happened(now, Event::LaneSlow { lane });
        }
    }

    /// A kernel ends now, in which these devices failed. What the scheduler must know before it hears of the end: it is not
    /// to send another kernel to those, and may send one to lanes that were only slow.
    pub(super) fn before_end(&mut self, now: Instant, kernel: KernelId, failed: LaneSet) {
        let slow = self.watched.end(kernel);
        failed.without(slow).iter().for_each(|lane| self.happened(now, Event::LaneSlow { lane }));
        slow.without(failed).iter().for_each(|lane| self.happened(now, Event::LaneBack { lane }));
    }

    /// The scheduler has heard of the kernel's end: no kernel is on the lanes of devices that failed in it.
    pub(super) fn after_end(&mut self, now: Instant, failed: LaneSet) {
        failed.iter().for_each(|lane| self.happened(now, Event::LaneLost { lane }));
    }

    /// Says of devices that failed before the scheduler began that their lanes are lost.
    pub(crate) fn hear_of_failed(&mut self, now: Instant) {
        for lane in self.backend.failed().iter() {
            self.happened(now, Event::LaneLost { lane });
        }
    }

    /// Has a lost lane's device tried, on the lane's thread.
    pub(super) fn probe(&mut self, now: Instant, lane: LaneId) {
        let (shared, guard) = (self.shared.upgrade(), self.past.on_lanes());
        let Some(shared) = shared else { return };
        let job = Box::new(move |_: &dyn duet_kernels::crew::Crew| shared.run_probe(lane, guard));
        if self.lanes.launch(LaneSet::from_iter([lane]), job).is_err() {
            // The engine stops.
            self.happened(now, Event::LaneLost { lane });
        }
    }

    /// A probe has ended.
    pub(crate) fn probed(&mut self, now: Instant, found: Event, guard: &Arc<OnLanes>) {
        if self.past.is_present(guard) {
            self.happened(now, found);
        }
    }

    /// Those of some lanes that are devices'.
    fn device_lanes(&self, lanes: LaneSet) -> LaneSet {
        lanes.without(lanes.without(self.backend.device_lanes()))
    }
}

/// Times its prediction: far more than jitter and a busy machine make of it.
const TIMES: u64 = 8;
/// And a process may be off its core for some tenths of a second.
const LEAST: Nanos = Nanos(500_000_000);
