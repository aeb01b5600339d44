//! The world with real lanes: carries out the scheduler's commands and remembers what happened for it.
//!
//! It belongs to whoever holds the engine's lock. Nothing in here computes, waits or allocates KV memory at length:
//! kernels run on lanes, and KV is moved to and from disk by a thread of its own.

mod anew;
mod kv;
mod lane_health;
mod reports;

use crate::backend::Backend;
use crate::exact::ExactGraphs;
use crate::exchange::GraphLoader;
use crate::kept::{KeptStore, Owner};
use crate::pass::{Need, PassUnderWay, Way};
use crate::past::{Past, When};
use crate::prober::Prober;
use crate::request::{EngineError, FlowKey};
use crate::runtime::{Resources, Shared};
use crate::sequence::{Sequence, Start, Workspace};
use crate::spill::{Mover, SpillFile};
use crate::timer::Timer;
use duet_device::CpuLanes;
use duet_driver::World;
use duet_scheduler::{Command, End, Event, Kernel, Outcome, PassId, Request, Source};
use duet_types::{Class, FinishReason, FlowId, Instant, LaneSet, RequestId, TenantId, Tokens};
use lane_health::Watched;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// What the scheduler of an engine runs in.
pub(crate) struct EngineWorld<B: Backend> {
    backend: Arc<B>,
    lanes: CpuLanes,
    /// For the kernels, which report to it.
    shared: Weak<Shared<B>>,
    open: HashMap<RequestId, Open<B>>,
    /// Sequences that ended, without their keys and values, until the lock is given back: what they drafted from takes
    /// milliseconds to drop.
    ended: Vec<Box<Sequence<B>>>,
    passes: BTreeMap<PassId, Arc<PassUnderWay<B>>>,
    exact: ExactGraphs,
    kept: KeptStore<B::Table>,
    /// Flows that clients named.
    named: HashMap<(TenantId, FlowKey), FlowId>,
    events: VecDeque<(Instant, Event)>,
    /// When the last thing happened of which the scheduler has heard.
    heard: Instant,
    spare: Vec<Workspace>,
    /// Absent once the engine stops.
    helpers: Option<Helpers<B>>,
    next_request: u64,
    next_flow: u64,
    /// Times that a request's keys and values were dropped.
    discards: u64,
    life: Life,
    past: Past,
    watched: Watched,
}

/// The threads that sleep.
pub(crate) struct Helpers<B: Backend> {
    pub(crate) timer: Timer,
    /// Rings when a kernel on a device's lane may be late; absent where there are no devices.
    pub(crate) watch: Option<Timer>,
    pub(crate) mover: Mover<B::Table>,
    /// Present where a device exchanges its graphs.
    pub(crate) exchange: Option<GraphLoader>,
    /// Present while the run is recorded.
    pub(crate) _prober: Option<Prober>,
}

/// A request that was submitted and is not released.
struct Open<B: Backend> {
    owner: Owner,
    /// Of its prompt and of what is expected of its answer.
    tokens: Tokens,
    /// What is kept of another request, until it has that or something better.
    continues: Option<RequestId>,
    place: Place<B>,
}

/// Where a sequence is.
enum Place<B: Backend> {
    Here(Box<Sequence<B>>),
    /// Its table is on the way to disk or to memory.
    Moving(Box<Sequence<B>>, Option<Source>),
    /// It waits for kept KV that is on its way to disk.
    Awaiting(Box<Sequence<B>>),
    OnDisk(Box<Sequence<B>>, Arc<SpillFile>),
    InPass(PassId),
    /// It is being put from one place to another, within one call.
    InHand,
}

/// What a kernel has from its launch until the world has heard of its end. The pages of its members, if nobody else has
/// them, go back before it is said that it has left its lanes.
pub(crate) struct Held<B: Backend> {
    pub(crate) pass: Arc<PassUnderWay<B>>,
    _on_lanes: Arc<crate::past::OnLanes>,
}

/// Whether the engine goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    Stopping,
}

/// How many requests of a class may wait, and how many tokens open requests may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimit {
    pub(crate) waiting: usize,
    pub(crate) max: usize,
    pub(crate) tokens_max: Tokens,
}

impl<B: Backend> EngineWorld<B> {
    pub(crate) fn new(
        backend: Arc<B>,
        lanes: CpuLanes,
        shared: Weak<Shared<B>>,
        helpers: Helpers<B>,
        exact: ExactGraphs,
    ) -> Self {
        let kept = KeptStore::new(backend.cuts());
        Self {
            exact,
            backend,
            lanes,
            shared,
            open: HashMap::new(),
            ended: Vec::new(),
            passes: BTreeMap::new(),
            kept,
            named: HashMap::new(),
            events: VecDeque::new(),
            heard: Instant::default(),
            spare: Vec::new(),
            helpers: Some(helpers),
            next_request: 0,
            next_flow: 0,
            discards: 0,
            life: Life::Running,
            past: Past::new(),
            watched: Watched::default(),
        }
    }

    /// What nobody needs any more, to be dropped without the lock.
    pub(crate) fn take_ended(&mut self) -> Vec<Box<Sequence<B>>> {
        std::mem::take(&mut self.ended)
    }

    /// Takes in a request. The caller runs the driver's loop afterwards.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        class: Class,
        owner: (TenantId, Option<FlowKey>),
        sequence: Sequence<B>,
        tokens: Tokens,
        limit: QueueLimit,
    ) -> Result<RequestId, EngineError> {
        self.has_room(tokens, limit)?;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let (tenant, key) = owner;
        let found = match sequence.start() {
            Start::Anywhere => self.kept.prefix(tenant, sequence.prompt()),
            Start::FirstToken => None,
        };
        let prefix = found.map(|(prefix, _)| prefix);
        let continued = found.and_then(|(_, owner)| owner.map(|owner| owner.flow));
        let flow = self.flow(tenant, key.as_ref(), continued);
        let (prompt, head) = (Tokens(sequence.prompt().len() as u32), sequence.prompt_head());
        let net = sequence.net();
        let owner = Owner { tenant, flow, key, class };
        let continues = prefix.map(|prefix| prefix.of);
        self.open.insert(id, Open { owner, tokens, continues, place: Place::Here(Box::new(sequence)) });
        self.happened(now, Event::Submitted(Request { id, flow, class, prompt, prefix, head, net }));
        Ok(id)
    }

    /// Whether a request of so many tokens would be queued now.
    pub(crate) fn has_room(&self, tokens: Tokens, limit: QueueLimit) -> Result<(), EngineError> {
        if self.life == Life::Stopping {
            return Err(EngineError::ShuttingDown);
        }
        let held: u64 = self.open.values().map(|open| u64::from(open.tokens.0)).sum();
        let is_full = limit.waiting >= limit.max || held + u64::from(tokens.0) > u64::from(limit.tokens_max.0);
        // What comes to an idle engine does not wait.
        if !self.open.is_empty() && is_full {
            return Err(EngineError::Busy { queued: limit.waiting });
        }
        Ok(())
    }

    /// A flow is known by the key that its client gave it, or else by the kept KV that a request continues.
    fn flow(&mut self, tenant: TenantId, key: Option<&FlowKey>, continued: Option<FlowId>) -> FlowId {
        let mut new = || {
            self.next_flow += 1;
            FlowId(self.next_flow - 1)
        };
        let Some(key) = key else { return continued.unwrap_or_else(new) };
        if let Some(flow) = self.named.get(&(tenant, key.clone())) {
            return *flow;
        }
        let flow = new();
        if self.named.len() >= NAMED_FLOWS_MAX {
            // Only their numbers are lost: a name that comes again gets a new one.
            self.named.clear();
        }
        self.named.insert((tenant, key.clone()), flow);
        flow
    }

    /// A kernel on a part of the rows ended well. If it is to complete its pass first, it keeps what it has; else that is
    /// all.
    pub(crate) fn part_ended(
        &mut self,
        now: Instant,
        kernel: &Kernel,
        workspace: &mut Workspace,
        held: &mut Option<Held<B>>,
        failed: LaneSet,
    ) {
        let is_last = self.passes.get(&kernel.pass).is_some_and(|pass| pass.is_completed_by_last());
        if self.when(kernel) == When::Present && is_last {
            return;
        }
        let event = Event::KernelDone { kernel: kernel.id, outcome: Outcome::Progressed };
        if let Some(held) = held.take() {
            self.kernel_ended(now, kernel, event, std::mem::take(workspace), held, failed);
        }
    }

    /// Notes how a kernel ended, takes back what it worked with, and what its pass had if that is over. If its scheduler
    /// has failed meanwhile, nobody wants to know.
    pub(crate) fn kernel_ended(
        &mut self,
        now: Instant,
        kernel: &Kernel,
        event: Event,
        workspace: Workspace,
        held: Held<B>,
        failed: LaneSet,
    ) {
        // Under the lock, so that whoever waits for it goes on now.
        drop(held);
        self.spare.push(workspace);
        if self.when(kernel) == When::Present {
            self.before_end(now, kernel.id, failed);
            self.left_lanes(now, kernel.pass, event);
            self.after_end(now, failed);
        }
    }

    /// When a kernel was launched.
    fn when(&self, kernel: &Kernel) -> When {
        kernel.members.first().map_or(When::Present, |member| self.past.of(member.request))
    }

    fn left_lanes(&mut self, now: Instant, pass: PassId, event: Event) {
        if self.passes.get(&pass).is_some_and(|pass| pass.ended(&event) == Need::Over)
            && let Some(over) = self.passes.remove(&pass)
        {
            self.scatter(&over);
        }
        self.happened(now, event);
    }

    fn scatter(&mut self, pass: &PassUnderWay<B>) {
        for (request, sequence) in pass.take_members() {
            if let Some(open) = self.open.get_mut(&request) {
                open.place = Place::Here(sequence);
            }
        }
    }

    /// Notes an event for [`World::next`].
    pub(crate) fn happened(&mut self, now: Instant, event: Event) {
        self.events.push_back((now, event));
    }

    /// Cancels everything; clients are told that the engine stops.
    pub(crate) fn stop(&mut self, now: Instant) {
        self.life = Life::Stopping;
        // The mover finishes what it was given, and the timer rings no more.
        self.helpers = None;
        self.exact.stop();
        let mut open: Vec<RequestId> = self.open.keys().copied().collect();
        open.sort_unstable();
        for request in open {
            self.happened(now, Event::Cancelled(request));
        }
    }

    /// How many things happened of which the scheduler has not heard: none, unless something of the past is to come.
    pub(crate) fn unheard(&self) -> usize {
        self.events.len()
    }

    /// How many requests are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whose a request is.
    pub(crate) fn owner(&self, request: RequestId) -> Option<&Owner> {
        self.open.get(&request).map(|open| &open.owner)
    }

    /// What ended requests left.
    pub(crate) fn kept(&self) -> &KeptStore<B::Table> {
        &self.kept
    }

    fn take(&mut self, request: RequestId) -> Place<B> {
        let open = self.open.get_mut(&request).unwrap_or_else(|| panic!("{request} is not open"));
        std::mem::replace(&mut open.place, Place::InHand)
    }

    fn put(&mut self, request: RequestId, place: Place<B>) {
        if let Some(open) = self.open.get_mut(&request) {
            open.place = place;
        }
    }

    /// A pass between kernels that the scheduler has given up is undone when the first of its members is dealt with.
    fn undo_pass_of(&mut self, request: RequestId) {
        let Some(Open { place: Place::InPass(pass), .. }) = self.open.get(&request) else { return };
        if let Some(over) = self.passes.remove(pass) {
            over.undo(&self.backend);
            self.scatter(&over);
        }
    }

    fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: Kernel) {
        if !self.passes.contains_key(&kernel.pass) {
            let gathered = self.gather(&kernel);
            self.passes.insert(kernel.pass, Arc::new(gathered));
        }
        let pass = Arc::clone(&self.passes[&kernel.pass]);
        let way = Way::of(&kernel, lanes, &*self.backend);
        pass.launched(&kernel, way);
        let announced = Arc::clone(&pass);
        let exact = self.exact.of_kernel(lanes, &kernel);
        self.watch(now, lanes, &kernel);
        let workspace = self.spare.pop().unwrap_or_default();
        let shared = self.shared.upgrade().expect("the world is part of what is shared");
        let (id, pass_id) = (kernel.id, kernel.pass);
        let held = Held { pass, _on_lanes: self.past.on_lanes() };
        let job = Box::new(move |crew: &dyn duet_kernels::crew::Crew| {
            shared.run_kernel(&kernel, held, workspace, Resources { lanes, crew, exact });
        });
        if let Err(stopped) = self.lanes.launch(lanes, job) {
            tracing::warn!("a kernel cannot be run: {stopped}");
            announced.not_launched(way);
            self.left_lanes(now, pass_id, Event::KernelFailed { kernel: id });
        }
    }

    fn gather(&mut self, kernel: &Kernel) -> PassUnderWay<B> {
        let members = kernel.members.iter().map(|member| {
            let open = self.open.get_mut(&member.request).unwrap_or_else(|| panic!("{} is not open", member.request));
            match std::mem::replace(&mut open.place, Place::InPass(kernel.pass)) {
                Place::Here(sequence) => (member.request, sequence),
                _ => panic!("{} is not idle", member.request),
            }
        });
        PassUnderWay::new(members.collect())
    }

    fn release(&mut self, now: Instant, request: RequestId, end: End) {
        self.undo_pass_of(request);
        // Its job was dropped by a device that stopped.
        let Some(open) = self.open.remove(&request) else { return };
        let mut sequence = match open.place {
            Place::Here(sequence) | Place::OnDisk(sequence, _) => sequence,
            Place::Moving(..) | Place::Awaiting(_) | Place::InPass(_) | Place::InHand => {
                panic!("{request} is released while it moves")
            }
        };
        // An answer that cannot go on has ended, for the scheduler.
        let is_broken = sequence.has_failed() && end != End::Finished(FinishReason::Cancelled);
        match end {
            End::Failed => sequence.finish_failed(EngineError::Internal("a kernel failed".to_owned())),
            End::Finished(FinishReason::Cancelled) if self.life == Life::Stopping => {
                sequence.finish_failed(EngineError::ShuttingDown);
            }
            End::Finished(_) if is_broken => {
                sequence.finish_failed(EngineError::Internal("it cannot go on".to_owned()))
            }
            End::Finished(reason) => sequence.finish(&self.backend, reason),
        }
        let kept = sequence.take_kept();
        self.ended.push(sequence);
        match (end, kept) {
            (End::Finished(_), Some((tokens, table))) if !tokens.is_empty() && !is_broken => {
                for replaced in self.kept.keep(request, open.owner, tokens, table) {
                    self.happened(now, Event::Dropped { request: replaced });
                }
            }
            // The scheduler counts on what it computed.
            (End::Finished(_), _) => self.happened(now, Event::Dropped { request }),
            (End::Failed, _) => {}
        }
    }
}

impl<B: Backend> World for EngineWorld<B> {
    fn next(&mut self) -> Option<(Instant, Event)> {
        if !self.past.is_over() {
            return None;
        }
        let (at, event) = self.events.pop_front()?;
        // Of those that waited for the past to be over, the first lead to others, which come after the last.
        self.heard = self.heard.max(at);
        Some((self.heard, event))
    }

    fn apply(&mut self, now: Instant, command: Command) {
        match command {
            Command::Restore(request) => self.restore(now, request),
            Command::Launch { lanes, kernel, reason: _ } => self.launch(now, lanes, kernel),
            Command::Prepare(graph) => {
                if let Some(event) = self.exact.prepare(graph) {
                    self.happened(now, event);
                }
            }
            Command::Probe(lane) => self.probe(now, lane),
            Command::Reclaim(graph) => self.exact.reclaim(graph),
            Command::LoadGraph(load) => match self.helpers.as_ref().and_then(|helpers| helpers.exchange.as_ref()) {
                Some(loader) => {
                    self.past.loads();
                    loader.load(load);
                }
                // The engine stops.
                None => self.happened(now, Event::GraphLoadFailed { block: load.block }),
            },
            Command::Spill(request) => self.spill(now, request),
            Command::Forget(request) => self.kept.forget(request),
            Command::Discard(request) => self.discard(request),
            Command::DropCopy { lane, request } => self.backend.drop_copy(lane, request),
            Command::SetTimer { at, reason: _ } => {
                if let Some(helpers) = &self.helpers {
                    helpers.timer.set(at);
                }
            }
            Command::Release { request, end } => self.release(now, request, end),
        }
    }
}

/// Names of flows that are remembered; far more than agents on one machine have.
const NAMED_FLOWS_MAX: usize = 10_000;
