//! The state machine: events in, the policy's decisions checked and carried out, commands out.

mod endings;
mod exchanging;
mod launching;

use endings::has_dynamic_lane;

use crate::ageing::{Ageing, Overdue};
use crate::command::Command;
use crate::config::SchedulerConfig;
use crate::drift::Drift;
use crate::event::{Event, Request};
use crate::graphs::Graphs;
use crate::health::Health;
use crate::kernel::PassId;
use crate::mechanism::Mechanism;
use crate::memory::{Memory, Pages};
use crate::memory_limits::MemoryLimits;
use crate::mirrors::Mirrors;
use crate::pass::{Broken, Pass};
use crate::policy::{ActivationBuffers, Admission, Policy};
use crate::queues::Line;
use crate::reason::Reason;
use crate::request_table::{Phase, Progress, RequestTable};
use crate::residency::Residency;
use crate::running::Running;
use crate::view::View;
use duet_types::{Class, Instant, KernelId, LaneId, LaneSet, RequestId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Decides what runs. See the crate's documentation for its invariants.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: SchedulerConfig,
    policy: Box<dyn Policy>,
    buffers: ActivationBuffers,
    pub(crate) admission: Admission,
    pub(crate) table: RequestTable,
    pub(crate) passes: BTreeMap<PassId, Pass>,
    running: BTreeMap<KernelId, Running>,
    graphs: Graphs,
    pub(crate) memory: Memory,
    ageing: Ageing,
    drift: Drift,
    pub(crate) mirrors: Mirrors,
    /// Requests for which memory is being made free, or for which there is none at present.
    pub(crate) short: BTreeSet<RequestId>,
    /// Live requests that wait for a page: before them nobody of their class is admitted.
    pub(crate) hungry: BTreeSet<RequestId>,
    pub(crate) health: Health,
    /// Graphs that are exchanged, if there are any.
    residency: Option<Residency>,
    /// Lanes whose next kernel waits for its graph.
    stalled: LaneSet,
    /// Until when lanes must rest whose occupancy is capped.
    rests: BTreeMap<LaneId, Instant>,
    pub(crate) commands: VecDeque<Command>,
    timers: BTreeSet<Instant>,
    next_kernel: u64,
    next_pass: u64,
    pub(crate) now: Instant,
}

impl Scheduler {
    /// A scheduler with no requests.
    ///
    /// # Panics
    /// If there is no dynamic lane, no layer, no memory, a bound of nothing, or no room for a graph of each block.
    #[must_use]
    pub fn new(config: SchedulerConfig, policy: Box<dyn Policy>) -> Self {
        assert!(has_dynamic_lane(&config, LaneSet::EMPTY), "there must be a lane that takes any shape");
        assert!(config.heg.layers > 0, "there must be a layer");
        assert!(config.limits.chunk.0 > 0 && config.limits.prefill_rows.0 > 0, "a chunk must hold a token");
        assert!(config.limits.batch > 0, "a batch must hold a request");
        let spills = config.mechanisms.has(Mechanism::Spill);
        let disk_pages = if spills { config.memory.disk_pages } else { 0 };
        let memory = Memory::new(MemoryLimits { disk_pages, ..config.memory });
        let ageing = Ageing::new(config.limits.overdue_share, config.limits.age);
        Self {
            buffers: policy.activation_buffers(),
            admission: policy.admission(),
            policy,
            table: RequestTable::default(),
            passes: BTreeMap::new(),
            running: BTreeMap::new(),
            graphs: Graphs::default(),
            memory,
            ageing,
            drift: Drift::default(),
            mirrors: Mirrors::default(),
            short: BTreeSet::new(),
            hungry: BTreeSet::new(),
            health: Health::default(),
            residency: config.graphs.clone().map(|graphs| Residency::new(graphs, config.heg.layers)),
            stalled: LaneSet::EMPTY,
            rests: BTreeMap::new(),
            commands: VecDeque::new(),
            timers: BTreeSet::new(),
            next_kernel: 0,
            next_pass: 0,
            now: Instant::default(),
            config,
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
        self.ageing.advance(now, self.overdue());
        self.stalled = LaneSet::EMPTY;
        match event {
            Event::Submitted(request) => self.submitted(request),
            Event::Restored { request, cached, source } => self.restored(request, cached, source),
            Event::KernelDone { kernel, outcome } => self.kernel_done(kernel, outcome),
            Event::DataReady { pass } => self.data_ready(pass),
            Event::KernelFailed { kernel } => self.kernel_failed(kernel, Broken::KernelFailed),
            Event::GraphReady { graph } => self.graphs.ready(now, graph),
            Event::GraphFailed { graph } => self.graphs.failed(graph),
            Event::GraphLoaded { block } => self.residency().loaded(block),
            Event::GraphLoadFailed { block } => self.residency().failed(block),
            Event::LaneLost { lane } => self.lane_lost(lane),
            Event::LaneSlow { lane } => self.health.slow(lane),
            Event::LaneBack { lane } => self.health.back(lane),
            Event::Spilled { request } => self.spilled(request),
            Event::SpillFailed { request } => self.spill_failed(request),
            Event::Dropped { request } => {
                self.memory.drop_kept(request);
                self.drop_copies(request);
                self.memory_changed_hands();
            }
            Event::Cancelled(request) => self.cancel(request),
            Event::Timer => {
                self.timers = self.timers.split_off(&Instant(now.0 + 1));
                self.commands.extend(self.health.due(now).into_iter().map(Command::Probe));
            }
        }
        self.decide();
    }

    /// The next command, in the order in which they are to be carried out.
    pub fn poll(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The requests in the table, oldest first, and how far each has come.
    pub fn requests(&self) -> impl Iterator<Item = (&Request, Phase, Progress, Instant)> {
        self.table.iter().map(|row| (&row.request, row.phase, row.progress(), row.arrived))
    }

    /// A pass under way.
    #[must_use]
    pub fn pass(&self, pass: PassId) -> Option<&Pass> {
        self.passes.get(&pass)
    }

    /// How many requests stand in a queue.
    #[must_use]
    pub fn queue_len(&self, line: Line, class: Class) -> usize {
        self.table.queue_len(line, class)
    }

    /// How KV memory is used.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.memory.pages()
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    fn submitted(&mut self, request: Request) {
        let (id, class, prefix) = (request.id, request.class, request.prefix);
        self.table.insert(self.now, request);
        self.memory.awaits(id, prefix);
        if class == Class::Proactive && self.config.mechanisms.has(Mechanism::Ageing) {
            self.set_timer(self.ageing.due(self.now), Reason::Ageing);
        }
    }

    fn overdue(&self) -> Overdue {
        let oldest = self.table.oldest(Class::Proactive);
        if !oldest.is_some_and(|row| self.ageing.is_overdue(self.now, row.arrived)) {
            return Overdue::Nothing;
        }
        if self.view().overdue_that_can_run().is_some() { Overdue::Something } else { Overdue::WithoutMemory }
    }

    fn set_timer(&mut self, at: Instant, reason: Reason) {
        if at > self.now && self.timers.insert(at) {
            self.commands.push_back(Command::SetTimer { at, reason });
        }
    }

    fn view(&self) -> View<'_> {
        let lost = self.health.unusable();
        let busy = self.running.values().fold(lost, |busy, running| busy.union(running.lanes));
        let rests = self.rests.iter().filter(|(_, until)| self.now < **until).map(|(&lane, _)| lane).collect();
        let idle = self.config.machine.all().without(busy).without(self.stalled).without(rests);
        View {
            now: self.now,
            config: &self.config,
            idle,
            lost,
            table: &self.table,
            passes: &self.passes,
            running: &self.running,
            graphs: &self.graphs,
            residency: self.residency.as_ref(),
            ageing: &self.ageing,
            drift: &self.drift,
            mirrors: &self.mirrors,
            timers: &self.timers,
            short: &self.short,
            next_pass: PassId(self.next_pass),
        }
    }

    fn residency(&mut self) -> &mut Residency {
        self.residency.as_mut().expect("graphs are loaded for a device that exchanges them")
    }

    /// Asks the policy until it wants nothing more.
    fn decide(&mut self) {
        self.load_due();
        // Taken out while it looks at the rest.
        let mut policy = std::mem::replace(&mut self.policy, Box::new(crate::policy::Idle));
        let mut left = DECISIONS_MAX + 4 * self.table.len();
        while let Some(decision) = policy.decide(&self.view()) {
            assert!(left > 0, "{policy:?} comes to no end: {decision:?}");
            left -= 1;
            self.carry_out(decision);
        }
        self.policy = policy;
        self.load_due();
    }
}

/// Decisions after one event, beside some for each request: more are a policy that goes round in circles.
const DECISIONS_MAX: usize = 1000;
