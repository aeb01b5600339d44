//! A pass under way, which has one owner: this. Lanes come to it with their kernels, one after the other or side by side.
//!
//! A lane of cores has the rows for itself while it computes. A device's lane needs no more than what its rows read: it
//! copies that of all rows when it comes to a node first, so that the cores can go on, and what its rows come to waits
//! until somebody has the rows. Cores that begin a part of a node let a device's kernel that was launched before them
//! read first. (Agent.xpu §4.3 ④, Algorithm 1: both lanes of a split run at once)
//!
//! The scheduler takes a pass for complete when the last kernel of its last node is done, whichever that is, and wants
//! its tokens from that one. So how many kernels are on lanes is known here, and a kernel on a part of the rows ends under
//! the engine's lock, where it is certain whether others are still on lanes; the one that finds none completes the pass.
//!
//! Invariants: whoever has the rows finds in them all that was computed before, wherever that was. Whatever happens in a
//! kernel, each sequence gets its table back: after the last node with its new rows, and after an error or a panic as it
//! was before the pass, so that it can be run again.

mod choosing;
mod drafting;
mod head_rows;
mod looking;
mod rows;
mod scoring;

pub(crate) use drafting::Drafters;
pub(crate) use rows::panic_message;

use crate::backend::Backend;
use crate::executors::{Ran, Site};
use crate::request::EngineError;
use crate::sequence::{Sequence, Workspace};
use duet_model::Tell;
use duet_scheduler::{Completes, Event, Kernel, Outcome};
use duet_types::{Class, LaneSet, RequestId, Stage};
use rows::{Rows, message};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A pass, and its kernels on lanes.
pub(crate) struct PassUnderWay<B: Backend> {
    rows: Mutex<Rows<B>>,
    apart: Mutex<Apart<B>>,
    /// A device's kernel has read.
    has_read: Condvar,
    on_lanes: Mutex<OnLanes>,
}

/// What devices have of it.
struct Apart<B: Backend> {
    /// Kernels on parts that were launched on a device's lane and have not read yet.
    to_read: usize,
    /// What the current nodes read.
    inputs: Option<(Range<usize>, Arc<B::Inputs>)>,
    /// What is to be joined.
    outputs: Vec<B::Outputs>,
}

/// Its kernels on lanes, and how far it is.
#[derive(Debug, Default)]
struct OnLanes {
    kernels: usize,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    GoesOn,
    /// All rows of its last node are with lanes.
    Closing,
    /// A kernel failed.
    Broken,
}

/// Whether anybody still needs a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    GoesOn,
    /// It came to its end, or it failed and none of its kernels is on a lane.
    Over,
}

impl<B: Backend> PassUnderWay<B> {
    pub(crate) fn new(members: Vec<(RequestId, Box<Sequence<B>>)>) -> Self {
        Self {
            rows: Mutex::new(Rows::new(members)),
            apart: Mutex::new(Apart { to_read: 0, inputs: None, outputs: Vec::new() }),
            has_read: Condvar::new(),
            on_lanes: Mutex::default(),
        }
    }

    /// A kernel goes to its lanes. One on a part that runs apart reads before the cores go on.
    pub(crate) fn launched(&self, kernel: &Kernel, way: Way) {
        let mut on_lanes = lock(&self.on_lanes);
        on_lanes.kernels += 1;
        if on_lanes.progress == Progress::GoesOn && kernel.completes == Completes::Pass {
            on_lanes.progress = Progress::Closing;
        }
        if way == Way::Apart {
            lock(&self.apart).to_read += 1;
        }
    }

    /// It did not get there after all.
    pub(crate) fn not_launched(&self, way: Way) {
        if way == Way::Apart {
            self.read_or_gone();
        }
    }

    /// Whether a kernel on a part that ends now is the one that completes the pass.
    pub(crate) fn is_completed_by_last(&self) -> bool {
        let on_lanes = lock(&self.on_lanes);
        on_lanes.kernels == 1 && on_lanes.progress == Progress::Closing
    }

    /// A kernel has left its lanes.
    pub(crate) fn ended(&self, event: &Event) -> Need {
        let mut on_lanes = lock(&self.on_lanes);
        on_lanes.kernels -= 1;
        match event {
            Event::KernelDone { outcome: Outcome::Progressed, .. } => {}
            Event::KernelDone { outcome: Outcome::Waits { .. }, .. } => {
                // Its rows are with no lane any more.
                if on_lanes.progress == Progress::Closing {
                    on_lanes.progress = Progress::GoesOn;
                }
            }
            Event::KernelDone { .. } => return Need::Over,
            _ => on_lanes.progress = Progress::Broken,
        }
        let over = on_lanes.kernels == 0 && on_lanes.progress == Progress::Broken;
        if over { Need::Over } else { Need::GoesOn }
    }

    /// Runs a kernel. One on all rows that completes the pass ends it; one on a part leaves that to [`Self::complete`].
    /// The caller catches panics and [settles](Self::settled) what came of it.
    pub(crate) fn run(
        &self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
        drafters: &Drafters<'_, B>,
    ) -> Result<Outcome, EngineError> {
        let way = Way::of(kernel, site.lanes, backend);
        if way == Way::Apart && self.run_apart(kernel, backend, site)? {
            return Ok(Outcome::Progressed);
        }
        let site = if way == Way::Apart { site.without_device() } else { site };
        if way == Way::Part {
            self.wait_for_readers();
        }
        let mut rows = self.joined(backend, site)?;
        let range = kernel.rows.start as usize..kernel.rows.end as usize;
        let begun = Instant::now();
        rows.begun(kernel, backend)?;
        if (way, kernel.completes) == (Way::Whole, Completes::Pass) {
            rows.seek(kernel, backend);
        }
        let ran = backend.run(rows.begun(kernel, backend)?, kernel.nodes.clone(), range, site)?;
        rows.spent += begun.elapsed();
        if let Ran::ToMissing { done, about } = ran {
            return Ok(Outcome::Waits { node: kernel.nodes.start + done, about: about.into() });
        }
        if kernel.class() == Class::Proactive && kernel.stage() == Stage::Prefill {
            // Nobody waits, and the next chunk, perhaps a person's, finds its memory prepared.
            backend.warm_memory();
        }
        match (way, kernel.completes) {
            (Way::Whole, Completes::Pass) => rows.complete(kernel, backend, site, workspace, drafters),
            _ => Ok(Outcome::Progressed),
        }
    }

    /// Ends a pass whose parts of the last node are all done.
    pub(crate) fn complete(
        &self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
        workspace: &mut Workspace,
        drafters: &Drafters<'_, B>,
    ) -> Result<Outcome, EngineError> {
        self.joined(backend, site)?.complete(kernel, backend, site, workspace, drafters)
    }

    /// Does some work of a kernel, and makes an error of a panic; after either the pass is undone.
    pub(crate) fn settled<R>(
        &self,
        backend: &B,
        work: impl FnOnce() -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let done = catch_unwind(AssertUnwindSafe(work));
        let done = done.unwrap_or_else(|panic| Err(EngineError::Internal(message(&*panic))));
        if let Err(error) = &done {
            lock(&self.rows).break_with(error, backend);
        }
        done
    }

    /// Tells somebody when what it waits for is there, if it is still under way.
    pub(crate) fn when_ready(&self, backend: &B, tell: Tell) {
        let now = lock(&self.rows).pass.as_ref().and_then(|pass| backend.when_ready(pass, tell));
        // Without the rows, which whoever is told may want.
        if let Some(tell) = now {
            tell();
        }
    }

    /// Gives every sequence its table back, as it was before the pass.
    pub(crate) fn undo(&self, backend: &B) {
        lock(&self.rows).undo(backend);
    }

    /// The sequences, after the pass ended or was undone.
    pub(crate) fn take_members(&self) -> Vec<(RequestId, Box<Sequence<B>>)> {
        std::mem::take(&mut lock(&self.rows).members)
    }

    /// Ends its members with `error`, if no kernel has it. If one has, they end when it drops the pass.
    pub(crate) fn fail(self: Arc<Self>, backend: &B, error: &EngineError) {
        let Some(pass) = Arc::into_inner(self) else { return };
        pass.undo(backend);
        for (_, mut sequence) in pass.take_members() {
            sequence.finish_failed(error.clone());
        }
    }

    /// Runs a part on the lane of a device, without the rows. Whether the device did.
    fn run_apart(&self, kernel: &Kernel, backend: &B, site: Site<'_>) -> Result<bool, EngineError> {
        let read = catch_unwind(AssertUnwindSafe(|| self.read(kernel, backend, site)));
        self.read_or_gone();
        let Some(inputs) = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))? else { return Ok(false) };
        let rows = kernel.rows.start as usize..kernel.rows.end as usize;
        let outputs = backend.run_apart(&inputs, rows, site)?;
        let did = outputs.is_some();
        lock(&self.apart).outputs.extend(outputs);
        Ok(did)
    }

    /// What the rows of these nodes read, if a device can do without the pass.
    fn read(&self, kernel: &Kernel, backend: &B, site: Site<'_>) -> Result<Option<Arc<B::Inputs>>, EngineError> {
        let copied = lock(&self.apart).inputs.clone().filter(|(nodes, _)| *nodes == kernel.nodes);
        if let Some((_, inputs)) = copied {
            return Ok(Some(inputs));
        }
        let inputs = self.joined(backend, site)?.inputs(kernel, backend, site)?.map(Arc::new);
        lock(&self.apart).inputs = inputs.clone().map(|inputs| (kernel.nodes.clone(), inputs));
        Ok(inputs)
    }

    fn read_or_gone(&self) {
        lock(&self.apart).to_read -= 1;
        self.has_read.notify_all();
    }

    fn wait_for_readers(&self) {
        let apart = lock(&self.apart);
        drop(self.has_read.wait_while(apart, |apart| apart.to_read > 0).unwrap_or_else(PoisonError::into_inner));
    }

    /// The rows, with all that was computed of them.
    fn joined(&self, backend: &B, site: Site<'_>) -> Result<MutexGuard<'_, Rows<B>>, EngineError> {
        let mut rows = lock(&self.rows);
        let outputs = std::mem::take(&mut lock(&self.apart).outputs);
        rows.join(&outputs, backend, site.crew)?;
        Ok(rows)
    }
}

/// How a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On all rows.
    Whole,
    /// On some rows of a node, by cores or a team.
    Part,
    /// On some rows of a node, on the lane of one device.
    Apart,
}

impl Way {
    pub(crate) fn of<B: Backend>(kernel: &Kernel, lanes: LaneSet, backend: &B) -> Self {
        let all: u32 = kernel.members.iter().map(|member| member.len().0).sum();
        match kernel.rows == (0..all) {
            true => Self::Whole,
            false if lanes.len() == 1 && backend.device_lanes().contains_all(lanes) => Self::Apart,
            false => Self::Part,
        }
    }
}

/// What a panicking lane left is looked after by whoever comes next.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
