//! Where a kernel runs: the lanes that it was launched on, and their threads.

use duet_kernels::crew::Crew;
use duet_types::{LaneId, LaneSet};

/// The lanes and the threads of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) lanes: LaneSet,
    pub(crate) crew: &'a dyn Crew,
}

/// The lane of a device that is [a lane of its own](crate::DeviceUse::Lane): one thread, which waits for it. It is the
/// first one, where prefill goes.
pub(crate) const DEVICE_LANE: LaneId = LaneId(0);

impl Site<'_> {
    /// Which of a device and the CPU's cores these lanes are, if a device is a lane.
    pub(crate) fn of_device(&self) -> DeviceSide {
        match (self.lanes.contains(DEVICE_LANE), self.lanes.len()) {
            (true, 1) => DeviceSide::Device,
            (true, _) => DeviceSide::Both,
            (false, _) => DeviceSide::Cores,
        }
    }
}

/// On which side of a machine with a device lane a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSide {
    Device,
    Both,
    Cores,
}
