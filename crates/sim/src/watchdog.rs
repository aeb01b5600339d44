//! The watchdog: what a world does about a kernel that never ends.
//!
//! Nothing tells a hang from a slow kernel but time, so the watchdog waits for a multiple of the kernel's prediction.
//! Then the lane that leads the kernel's team is given up, and what it ran goes to another one: nobody knows what it
//! still does. Only where no lane that takes any shape would be left, the kernel fails and its lane is used again, as
//! after a reset of the device. (Agent.xpu assumes kernels that end)
//!
//! Invariant: a watched kernel is on a lane; it is forgotten when it leaves it, for whatever reason.

use duet_types::{Instant, KernelId};
use std::collections::BTreeMap;

/// Kernels that hang, and when that is noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog {
    watched: BTreeMap<KernelId, Instant>,
}

impl Watchdog {
    /// This kernel will never end, and that is noticed then.
    pub(crate) fn watch(&mut self, kernel: KernelId, until: Instant) {
        self.watched.insert(kernel, until);
    }

    /// Whether this kernel hangs.
    pub(crate) fn watches(&self, kernel: KernelId) -> bool {
        self.watched.contains_key(&kernel)
    }

    /// The kernel that is noticed next, and when. Ties go to the one that was launched first.
    pub(crate) fn next(&self) -> Option<(Instant, KernelId)> {
        self.watched.iter().map(|(&kernel, &until)| (until, kernel)).min()
    }

    /// The kernel is off its lanes.
    pub(crate) fn forget(&mut self, kernel: KernelId) {
        self.watched.remove(&kernel);
    }
}
