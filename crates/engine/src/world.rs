//! The engine's world: real lanes, real memory, real clients.
//!
//! It carries out the scheduler's commands. All of it is behind the runtime's one lock, together with the scheduler;
//! nothing in here computes. Invariant: each open request's sequence is here, or with the one kernel that runs for it.

use crate::backend::{Backend, Table as _};
use crate::flow::Flows;
use crate::handle::EngineStats;
use crate::request::EngineError;
use crate::runtime::Shared;
use crate::sequence::{Sequence, Workspace};
use duet_device::{Accelerator, CpuLanes};
use duet_driver::World;
use duet_model::kv::PAGE_TOKENS;
use duet_scheduler::{Command, End, Event, Kernel, Reason, Request};
use duet_types::{Class, FinishReason, Instant, LaneSet, RequestId, Tokens};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// What the scheduler of an engine runs in.
pub(crate) struct EngineWorld<B: Backend> {
    backend: Arc<B>,
    lanes: CpuLanes,
    /// For the kernels, which report to it.
    shared: Weak<Shared<B>>,
    open: HashMap<RequestId, Place<B>>,
    flows: Flows<B::Table>,
    events: VecDeque<(Instant, Event)>,
    spare: Vec<Workspace>,
    next_request: u64,
    life: Life,
}

/// Where a sequence is.
enum Place<B: Backend> {
    Waiting(Box<Sequence<B>>),
    Here(Box<Sequence<B>>),
    OnLane,
}

/// Whether the engine goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    Stopping,
}

impl<B: Backend> EngineWorld<B> {
    pub(crate) fn new(backend: Arc<B>, lanes: CpuLanes, shared: Weak<Shared<B>>) -> Self {
        Self {
            backend,
            lanes,
            shared,
            open: HashMap::new(),
            flows: Flows::new(),
            events: VecDeque::new(),
            spare: Vec::new(),
            next_request: 0,
            life: Life::Running,
        }
    }

    /// Takes in a request. The caller runs the driver's loop afterwards.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        class: Class,
        sequence: Sequence<B>,
        queue_max: usize,
    ) -> Result<RequestId, EngineError> {
        if self.life == Life::Stopping {
            return Err(EngineError::ShuttingDown);
        }
        let queued = self.waiting();
        // What comes to an idle engine does not wait.
        if !self.open.is_empty() && queued >= queue_max {
            return Err(EngineError::Busy { queued });
        }
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let prompt = Tokens(sequence.prompt().len() as u32);
        self.open.insert(id, Place::Waiting(Box::new(sequence)));
        self.happened(now, Event::Submitted(Request { id, class, prompt }));
        Ok(id)
    }

    /// Takes back what a kernel had, and notes how it ended.
    pub(crate) fn kernel_ended(
        &mut self,
        now: Instant,
        request: RequestId,
        sequence: Box<Sequence<B>>,
        workspace: Workspace,
        event: Event,
    ) {
        self.spare.push(workspace);
        self.open.insert(request, Place::Here(sequence));
        self.happened(now, event);
    }

    /// Notes an event for [`World::next`].
    pub(crate) fn happened(&mut self, now: Instant, event: Event) {
        self.events.push_back((now, event));
    }

    /// Cancels everything; clients are told that the engine stops.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.life = Life::Stopping;
        let mut open: Vec<RequestId> = self.open.keys().copied().collect();
        open.sort_unstable();
        for request in open {
            self.happened(now, Event::Cancelled(request));
        }
    }

    /// Drops everything, after a broken invariant: nothing can be relied on. Clients are told by their outboxes.
    pub(crate) fn abandon(&mut self) {
        self.life = Life::Stopping;
        self.open.clear();
        self.events.clear();
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let pages = self.backend.kv_pages();
        let queued = self.waiting();
        EngineStats {
            queued,
            running: self.open.len() - queued,
            flows_kept: self.flows.len(),
            kv_pages_used: pages.capacity - pages.free,
            kv_pages: pages.capacity,
        }
    }

    fn waiting(&self) -> usize {
        self.open.values().filter(|place| matches!(place, Place::Waiting(_))).count()
    }

    fn restore(&mut self, now: Instant, request: RequestId) {
        let Some(Place::Waiting(mut sequence)) = self.open.remove(&request) else {
            panic!("{request} is restored once, before its first kernel");
        };
        let table = self.flows.attach(sequence.prompt()).unwrap_or_else(|| self.backend.table());
        let cached = sequence.restore(table);
        self.open.insert(request, Place::Here(sequence));
        self.happened(now, Event::Restored { request, cached });
    }

    fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: Kernel, reason: Reason) {
        tracing::trace!(kernel = kernel.id.0, request = kernel.request.0, ?kernel.rows, ?kernel.nodes, %lanes, %reason);
        let place = self.open.insert(kernel.request, Place::OnLane);
        let Some(Place::Here(sequence)) = place else { panic!("{} has a kernel already", kernel.request) };
        self.make_room(&sequence, &kernel);
        let workspace = self.spare.pop().unwrap_or_default();
        let shared = self.shared.upgrade().expect("the world is part of what is shared");
        let (id, request) = (kernel.id, kernel.request);
        let job = Box::new(move |crew: &dyn duet_kernels::crew::Crew| {
            shared.run_kernel(&kernel, sequence, workspace, crew);
        });
        if let Err(stopped) = self.lanes.launch(lanes, job) {
            // The job took the sequence along, and its outbox has told the client.
            tracing::warn!("{stopped}: request {request} is lost");
            self.open.remove(&request);
            self.happened(now, Event::KernelFailed { kernel: id });
        }
    }

    /// Gives up kept tables until the pages of the coming pass are free.
    fn make_room(&mut self, sequence: &Sequence<B>, kernel: &Kernel) {
        let Some(table) = sequence.table() else { return };
        let pages = kernel.rows.end.as_usize().div_ceil(PAGE_TOKENS);
        // One more for a last page that is shared and must be copied before it is written.
        let wanted = pages.saturating_sub(table.pages()) + 1;
        // A table that shares all its pages frees none; then the next one goes too.
        while self.backend.kv_pages().free < wanted && self.flows.give_up_oldest() {}
    }

    fn release(&mut self, request: RequestId, end: End) {
        let mut sequence = match self.open.remove(&request) {
            Some(Place::Waiting(sequence) | Place::Here(sequence)) => sequence,
            // Its job was dropped by a device that stopped.
            None => return,
            Some(Place::OnLane) => panic!("{request} is released while a kernel of it runs"),
        };
        match end {
            End::Failed => sequence.finish_failed(EngineError::Internal("a kernel failed".to_owned())),
            End::Finished(FinishReason::Cancelled) if self.life == Life::Stopping => {
                sequence.finish_failed(EngineError::ShuttingDown);
            }
            End::Finished(reason) => sequence.finish(&self.backend, reason),
        }
        if let Some((tokens, table)) = sequence.into_kept(&self.backend) {
            self.flows.keep(tokens, table);
        }
    }
}

impl<B: Backend> World for EngineWorld<B> {
    fn next(&mut self) -> Option<(Instant, Event)> {
        self.events.pop_front()
    }

    fn apply(&mut self, now: Instant, command: Command) {
        match command {
            Command::Restore(request) => self.restore(now, request),
            Command::Launch { lanes, kernel, reason } => self.launch(now, lanes, kernel, reason),
            Command::Release { request, end } => self.release(request, end),
        }
    }
}
