//! Where a kernel runs: the lanes that it was launched on, and their threads.

use duet_kernels::crew::Crew;
use duet_model::forward::TokenWise;
use duet_types::{LaneId, LaneSet};

/// The lanes and the threads of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) lanes: LaneSet,
    pub(crate) crew: &'a dyn Crew,
    /// Kernels that the device has for exactly the rows of this one.
    pub(crate) exact: Option<&'a dyn TokenWise>,
}

/// The lane of a device that is [a lane of its own](crate::DeviceUse::Lane): one thread, which waits for it. It is the
/// first one, where prefill goes.
pub(crate) const DEVICE_LANE: LaneId = LaneId(0);

impl<'a> Site<'a> {
    /// These lanes' threads, and nothing that was made for the rows.
    pub(crate) fn new(lanes: LaneSet, crew: &'a dyn Crew) -> Self {
        Self { lanes, crew, exact: None }
    }

    /// The threads alone, where the device did not run a kernel.
    pub(crate) fn without_device(self) -> Self {
        Self { lanes: LaneSet::EMPTY, exact: None, ..self }
    }

    /// Which of a device and the CPU's cores the kernel's lanes are, if a device is a lane.
    pub(crate) fn of_device(&self) -> DeviceSide {
        Self::side_of(self.lanes)
    }

    /// Which of them some lanes are.
    pub(crate) fn side_of(lanes: LaneSet) -> DeviceSide {
        match (lanes.contains(DEVICE_LANE), lanes.len()) {
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
