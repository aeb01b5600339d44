//! What every accelerator says of itself and does.

use duet_kernels::crew::Crew;
use duet_types::LaneSet;

/// Runs jobs on serial lanes.
pub trait Accelerator: Send + Sync {
    /// What it is.
    fn descriptor(&self) -> &Descriptor;

    /// Queues `job` for the team of `lanes`; it runs after what these lanes were given before. The caller must see to
    /// it that jobs of overlapping teams are not under way together: the scheduler does.
    ///
    /// # Errors
    /// [`DeviceStopped`]; the job is dropped.
    ///
    /// # Panics
    /// If `lanes` is empty or names a lane that the accelerator does not have.
    fn launch(&self, lanes: LaneSet, job: Job) -> Result<(), DeviceStopped>;
}

/// Work for a team. It is called on the leading lane's thread.
pub type Job = Box<dyn FnOnce(&dyn Crew) + Send>;

/// What an accelerator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The sort of device.
    pub kind: Kind,
    /// The shapes it can run.
    pub shapes: Shapes,
    /// Its lanes.
    pub lanes: LaneSet,
}

/// Sorts of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cores.
    Cpu,
}

/// The shapes a device can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Any number of rows.
    Dynamic,
    /// Only shapes that a graph was compiled for.
    StaticOnly,
}

/// The accelerator is shutting down and takes no more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has stopped")]
pub struct DeviceStopped;
