//! A pass as the lanes have it: whole, or each lane some rows of a node at the same time.
//!
//! A lane of cores has the pass for itself while it computes. A device's lane needs no more than what the rows read, and
//! copies that of all rows when it comes to a node first, so that the cores can go on; what its rows come to waits until
//! somebody has the pass. Cores that begin a part of a node let a device's kernel that was launched before them read
//! first. (Agent.xpu §4.3 ④, Algorithm 1: both lanes of a split run at once)
//!
//! Invariant: whoever has the pass finds in it all that was computed before, wherever that was.

use crate::backend::Backend;
use crate::executors::Site;
use crate::pass::PassUnderWay;
use crate::request::EngineError;
use crate::sequence::{Sequence, Workspace};
use duet_scheduler::{Kernel, Outcome};
use duet_types::RequestId;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A pass that several lanes may have kernels of.
pub(crate) struct SharedPass<B: Backend> {
    under_way: Mutex<PassUnderWay<B>>,
    beside: Mutex<Beside<B>>,
    /// A device's kernel has read.
    changed: Condvar,
}

/// What a device has of it.
struct Beside<B: Backend> {
    /// Kernels on parts that were launched on the device's lane and have not read yet.
    to_read: usize,
    /// What the current nodes read.
    inputs: Option<(Range<usize>, Arc<B::Inputs>)>,
    /// What is to be joined.
    outputs: Vec<B::Outputs>,
}

impl<B: Backend> SharedPass<B> {
    pub(crate) fn new(members: Vec<(RequestId, Box<Sequence<B>>)>) -> Self {
        Self {
            under_way: Mutex::new(PassUnderWay::new(members)),
            beside: Mutex::new(Beside { to_read: 0, inputs: None, outputs: Vec::new() }),
            changed: Condvar::new(),
        }
    }

    /// A kernel that reads first is about to be launched.
    pub(crate) fn announce(&self) {
        self.beside().to_read += 1;
    }

    /// It has read, or it was not launched after all.
    pub(crate) fn has_read(&self) {
        self.beside().to_read -= 1;
        self.changed.notify_all();
    }

    /// Runs a kernel. One on all rows that completes the pass ends it; one on a part leaves that to
    /// [`Self::complete`]. After an error the pass is undone.
    pub(crate) fn execute(
        &self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
    ) -> Result<Outcome, EngineError> {
        if !is_part(kernel) {
            return self.with_all(backend, site, |pass| pass.run(kernel, backend, site, workspace));
        }
        if site.lanes.len() == 1 && backend.device_lanes().contains_all(site.lanes) {
            return self.run_beside(kernel, backend, site);
        }
        self.wait_for_readers();
        self.with_all(backend, site, |pass| pass.run_part(kernel, backend, site))
    }

    /// Ends a pass whose parts of the last node are all done.
    pub(crate) fn complete(
        &self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
    ) -> Result<Outcome, EngineError> {
        self.with_all(backend, site, |pass| pass.complete(kernel, backend, site, workspace))
    }

    /// Gives every sequence its table back, as it was before the pass.
    pub(crate) fn undo(&self, backend: &B) {
        self.under_way().undo(backend);
    }

    /// The sequences, after the pass ended or was undone.
    pub(crate) fn take_members(&self) -> Vec<(RequestId, Box<Sequence<B>>)> {
        self.under_way().take_members()
    }

    /// Runs a part on the device's lane: without the pass where a device computes it, else as any lane does.
    fn run_beside(&self, kernel: &Kernel, backend: &B, site: Site<'_>) -> Result<Outcome, EngineError> {
        let read = self.read(kernel, backend, site);
        self.has_read();
        let Some(inputs) = read? else {
            return self.with_all(backend, site, |pass| pass.run_part(kernel, backend, site));
        };
        let rows = kernel.rows.start as usize..kernel.rows.end as usize;
        match PassUnderWay::<B>::caught(|| backend.run_apart(&inputs, rows, site)) {
            Ok(Some(outputs)) => {
                self.beside().outputs.push(outputs);
                Ok(Outcome::Progressed)
            }
            Ok(None) => {
                let site = site.without_device();
                self.with_all(backend, site, |pass| pass.run_part(kernel, backend, site))
            }
            Err(error) => self.with_all(backend, site, |_| Err(error)),
        }
    }

    /// What the rows of these nodes read, if a device can do without the pass.
    fn read(&self, kernel: &Kernel, backend: &B, site: Site<'_>) -> Result<Option<Arc<B::Inputs>>, EngineError> {
        let copied = self.beside().inputs.clone().filter(|(nodes, _)| *nodes == kernel.nodes);
        if let Some((_, inputs)) = copied {
            return Ok(Some(inputs));
        }
        let inputs = self.with_all(backend, site, |pass| pass.inputs(kernel, backend, site))?.map(Arc::new);
        self.beside().inputs = inputs.clone().map(|inputs| (kernel.nodes.clone(), inputs));
        Ok(inputs)
    }

    fn wait_for_readers(&self) {
        let beside = self.beside();
        drop(self.changed.wait_while(beside, |beside| beside.to_read > 0).unwrap_or_else(PoisonError::into_inner));
    }

    /// Has the pass, with all that was computed of it.
    fn with_all<R>(
        &self,
        backend: &B,
        site: Site<'_>,
        work: impl FnOnce(&mut PassUnderWay<B>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let mut pass = self.under_way();
        let outputs = std::mem::take(&mut self.beside().outputs);
        pass.guarded(backend, |pass| {
            pass.join(&outputs, backend, site.crew)?;
            work(pass)
        })
    }

    fn under_way(&self) -> MutexGuard<'_, PassUnderWay<B>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beside(&self) -> MutexGuard<'_, Beside<B>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a kernel is on some of the rows only.
pub(crate) fn is_part(kernel: &Kernel) -> bool {
    let all: u32 = kernel.members.iter().map(|member| member.len().0).sum();
    kernel.rows != (0..all)
}
