//! What the crew of a kernel's cores and a device have in common.

use super::Site;
use crate::request::EngineError;
use duet_model::Model;
use duet_model::forward::{Begun, Node, NotRun, Pass};
use duet_scheduler::machine::Capabilities;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Computes rows of nodes, and counts what it computed.
pub(super) trait Executor {
    /// What it can do, as far as it knows without a measurement.
    fn capabilities(&self) -> Capabilities;

    /// Begins a node for some rows of a pass. One with a queue does not wait, and is finished by [`Task::finish`]; nothing is
    /// to be finished where the rows are computed already.
    ///
    /// # Errors
    /// [`NotRun`]; the rows are as they were.
    fn begin<'e>(
        &'e self,
        task: Task<'e>,
        pass: &mut Pass,
        rows: Range<usize>,
    ) -> Result<Option<Box<dyn Begun + 'e>>, NotRun>;

    /// Takes note of what came of some work.
    ///
    /// # Errors
    /// [`EngineError::Device`] where nobody may stand in for it.
    fn ended(&self, macs: u64, result: Result<(), NotRun>) -> Result<Ended, EngineError>;
}

/// A node that is run somewhere.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) model: &'a Model,
    pub(super) node: Node,
    pub(super) site: Site<'a>,
}

/// What came of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// Somebody has to stand in.
    NotDone,
}

impl Task<'_> {
    /// Waits for what was begun on some rows, and takes its results.
    pub(super) fn finish(&self, begun: Box<dyn Begun + '_>, pass: &mut Pass, rows: Range<usize>) -> Result<(), NotRun> {
        self.model.end_node_on(begun, pass, self.node, rows, self.site.crew)
    }
}

/// The cores: whichever of them a kernel has, they are one executor. They compute at once, and fail only where weights are on
/// disk that cannot be read, which nobody else could.
#[derive(Debug, Default)]
pub(super) struct Cores {
    macs: AtomicU64,
}

impl Executor for Cores {
    fn capabilities(&self) -> Capabilities {
        Capabilities::CORES
    }

    fn begin<'e>(
        &'e self,
        task: Task<'e>,
        pass: &mut Pass,
        rows: Range<usize>,
    ) -> Result<Option<Box<dyn Begun + 'e>>, NotRun> {
        let run = task.model.try_run_node(pass, task.node, rows, task.site.crew);
        run.map(|()| None).map_err(|error| NotRun::Failed(error.to_string()))
    }

    fn ended(&self, macs: u64, result: Result<(), NotRun>) -> Result<Ended, EngineError> {
        match result {
            Ok(()) => self.did(macs),
            Err(NotRun::Failed(error) | NotRun::Unsupported(error)) => return Err(EngineError::Weights(error)),
        }
        Ok(Ended::Done)
    }
}

impl Cores {
    /// They did linear work.
    pub(super) fn did(&self, macs: u64) {
        self.macs.fetch_add(macs, Ordering::Relaxed);
    }

    /// Multiply-accumulates that they did.
    pub(super) fn work(&self) -> u64 {
        self.macs.load(Ordering::Relaxed)
    }

    pub(super) fn count_from_here(&self) {
        self.macs.store(0, Ordering::Relaxed);
    }
}
