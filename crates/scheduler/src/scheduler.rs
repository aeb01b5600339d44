//! The state machine: events in, the policy's decisions checked and carried out, commands out.

use crate::command::{Command, End};
use crate::config::SchedulerConfig;
use crate::event::{Event, Outcome};
use crate::kernel::next_kernel;
use crate::policy::{Decision, Policy, View};
use crate::request_table::{Activity, Fate, Lifecycle, RequestTable};
use duet_types::{FinishReason, Instant, KernelId, LaneSet, RequestId};
use std::collections::{BTreeMap, VecDeque};

/// Decides what runs. See the crate's documentation for its invariants.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    policy: Box<dyn Policy>,
    table: RequestTable,
    running: BTreeMap<KernelId, Running>,
    commands: VecDeque<Command>,
    next_kernel: u64,
    now: Instant,
}

/// A kernel under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    request: RequestId,
    lanes: LaneSet,
}

impl Scheduler {
    /// A scheduler with no requests.
    ///
    /// # Panics
    /// If there is no lane, no node, or a chunk or span of nothing.
    #[must_use]
    pub fn new(config: SchedulerConfig, policy: Box<dyn Policy>) -> Self {
        assert!(!config.lanes.is_empty(), "there must be a lane");
        assert!(config.nodes > 0, "a pass must have a node");
        assert!(config.chunk.0 > 0, "a chunk must hold a token");
        assert!(config.span_nodes != Some(0), "a span must hold a node");
        Self {
            config,
            policy,
            table: RequestTable::default(),
            running: BTreeMap::new(),
            commands: VecDeque::new(),
            next_kernel: 0,
            now: Instant::default(),
        }
    }

    /// Takes one event at `now`, which never goes backwards.
    /// Drain [`Self::poll`] until `None` before the next call.
    ///
    /// # Panics
    /// If the world broke its part: time went backwards, commands were not drained, a request was submitted twice, or
    /// an answer came to something that was not asked.
    pub fn handle(&mut self, now: Instant, event: Event) {
        assert!(now >= self.now, "time went backwards, from {:?} to {now:?}", self.now);
        assert!(self.commands.is_empty(), "commands were not drained");
        self.now = now;
        match event {
            Event::Submitted(request) => self.table.insert(now, request),
            Event::Restored { request, cached } => {
                let row = self.table.get_mut(request).expect("a request is in the table while it is restored");
                row.restored(cached);
                if row.fate == Fate::Cancelled {
                    self.release(request, End::Finished(FinishReason::Cancelled));
                }
            }
            Event::KernelDone { kernel, outcome } => self.kernel_done(kernel, outcome),
            Event::KernelFailed { kernel } => {
                let Running { request, .. } = self.take_running(kernel);
                let row = self.table.get_mut(request).expect("a request is in the table while it runs");
                row.activity = Activity::Idle;
                self.release(request, End::Failed);
            }
            Event::Cancelled(request) => self.cancel(request),
        }
        self.decide();
    }

    /// The next command, in the order in which they are to be carried out.
    pub fn poll(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn kernel_done(&mut self, kernel: KernelId, outcome: Outcome) {
        let Running { request, .. } = self.take_running(kernel);
        let row = self.table.get_mut(request).expect("a request is in the table while it runs");
        let finished = row.completed(outcome);
        // An answer that came to its end before the cancellation did is a whole answer.
        let end = match (finished, row.fate) {
            (Some(reason), _) => reason,
            (None, Fate::Cancelled) => FinishReason::Cancelled,
            (None, Fate::GoesOn) => return,
        };
        self.release(request, End::Finished(end));
    }

    fn cancel(&mut self, request: RequestId) {
        // The client may give up just as the request ends: that is no error.
        let Some(row) = self.table.get_mut(request) else { return };
        match row.activity {
            Activity::Idle => self.release(request, End::Finished(FinishReason::Cancelled)),
            // What was asked of the world cannot be taken back; the request goes when the answer comes.
            Activity::Restoring | Activity::Running(_) => row.fate = Fate::Cancelled,
        }
    }

    fn release(&mut self, request: RequestId, end: End) {
        self.table.remove(request);
        self.commands.push_back(Command::Release { request, end });
    }

    fn take_running(&mut self, kernel: KernelId) -> Running {
        self.running.remove(&kernel).unwrap_or_else(|| panic!("kernel {kernel} is not under way"))
    }

    fn decide(&mut self) {
        let busy = self.running.values().fold(LaneSet::EMPTY, |busy, running| busy.union(running.lanes));
        let lanes = self.config.lanes;
        let view = View { now: self.now, lanes, idle: lanes.without(busy), table: &self.table };
        let mut idle = view.idle;
        for decision in self.policy.decide(&view) {
            match decision {
                Decision::Begin(request) => {
                    let row = self.table.get_mut(request).expect("a policy chooses from the table");
                    assert_eq!(row.lifecycle, Lifecycle::Queued, "{request} has begun");
                    row.lifecycle = Lifecycle::Restoring;
                    row.activity = Activity::Restoring;
                    self.commands.push_back(Command::Restore(request));
                }
                Decision::Launch { request, lanes, reason } => {
                    assert!(!lanes.is_empty(), "a kernel needs a lane");
                    assert!(idle.contains_all(lanes), "lanes {lanes} are not all idle");
                    idle = idle.without(lanes);
                    let row = self.table.get_mut(request).expect("a policy chooses from the table");
                    assert_eq!(row.activity, Activity::Idle, "{request} is busy");
                    let id = KernelId(self.next_kernel);
                    self.next_kernel += 1;
                    let kernel = next_kernel(&self.config, id, request, row.request.prompt, &row.lifecycle)
                        .expect("only a request that has begun is launched");
                    row.activity = Activity::Running(kernel.clone());
                    self.running.insert(id, Running { request, lanes });
                    self.commands.push_back(Command::Launch { lanes, kernel, reason });
                }
            }
        }
    }
}
