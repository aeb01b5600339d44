//! The kernels of a pass that are on lanes: which of them ends it.
//!
//! The scheduler takes a pass for complete when the last kernel of its last node is done, whichever that is, and wants
//! its tokens from that one. So a kernel on a part of the rows ends under the engine's lock, where it is certain whether
//! others are still on lanes; the one that finds none completes the pass and reports once more.

use crate::backend::Backend;
use crate::request::EngineError;
use crate::shared_pass::SharedPass;
use duet_scheduler::{Completes, Event, Kernel, Outcome};
use std::sync::Arc;

/// A pass, and its kernels on lanes.
pub(crate) struct OnLanes<B: Backend> {
    pass: Arc<SharedPass<B>>,
    kernels: usize,
    progress: Progress,
}

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    GoesOn,
    /// All rows of its last node are with lanes.
    Closing,
    /// A kernel failed.
    Broken,
}

impl<B: Backend> OnLanes<B> {
    pub(crate) fn new(pass: SharedPass<B>) -> Self {
        Self { pass: Arc::new(pass), kernels: 0, progress: Progress::GoesOn }
    }

    /// The pass.
    pub(crate) fn pass(&self) -> &Arc<SharedPass<B>> {
        &self.pass
    }

    /// Ends its members with `error`, if no kernel has it. If one has, they end when it drops the pass.
    pub(crate) fn fail(self, backend: &B, error: &EngineError) {
        let Some(pass) = Arc::into_inner(self.pass) else { return };
        pass.undo(backend);
        for (_, mut sequence) in pass.take_members() {
            sequence.finish_failed(error.clone());
        }
    }

    /// A kernel goes to a lane.
    pub(crate) fn launched(&mut self, kernel: &Kernel) {
        self.kernels += 1;
        if self.progress == Progress::GoesOn && kernel.completes == Completes::Pass {
            self.progress = Progress::Closing;
        }
    }

    /// Whether a kernel on a part that ends now is the one that completes the pass.
    pub(crate) fn is_completed_by_last(&self) -> bool {
        self.kernels == 1 && self.progress == Progress::Closing
    }

    /// A kernel has left its lane. Whether nobody needs the pass any more: it came to its end, or it failed and none of its
    /// kernels is on a lane.
    pub(crate) fn ended(&mut self, event: &Event) -> bool {
        self.kernels -= 1;
        match event {
            Event::KernelDone { outcome: Outcome::Progressed, .. } => {}
            Event::KernelDone { .. } => return true,
            _ => self.progress = Progress::Broken,
        }
        self.kernels == 0 && self.progress == Progress::Broken
    }
}
