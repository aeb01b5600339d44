//! What lanes run.

use duet_kernels::crew::Crew;

/// Work for a team. It is called on the thread that leads.
pub type Job = Box<dyn FnOnce(&dyn Crew) + Send>;

/// The lanes are shutting down and take no more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lanes have stopped")]
pub struct LanesStopped;
