//! Where a kernel runs.

use duet_kernels::crew::Crew;
use duet_model::forward::TokenWise;
use duet_scheduler::Share;
use duet_types::LaneSet;

/// The lanes and the threads of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) lanes: LaneSet,
    /// All threads of these lanes.
    pub(crate) crew: &'a dyn Crew,
    /// Rows that devices of the team take.
    pub(crate) shares: &'a [Share],
    /// Kernels that the device has for exactly the rows of this one.
    pub(crate) exact: Option<&'a dyn TokenWise>,
}

impl<'a> Site<'a> {
    /// These lanes and their threads, with nothing divided and nothing that was made for the rows.
    pub(crate) fn new(lanes: LaneSet, crew: &'a dyn Crew) -> Self {
        Self { lanes, crew, shares: &[], exact: None }
    }

    /// The threads alone, where a device did not run a kernel.
    pub(crate) fn without_device(self) -> Self {
        Self { lanes: LaneSet::EMPTY, shares: &[], exact: None, ..self }
    }
}
