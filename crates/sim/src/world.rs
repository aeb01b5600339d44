//! The virtual world: takes the scheduler's commands, answers in virtual time, and checks what it is asked.

use crate::client::{Client, Graphs};
use crate::compiler::Compiler;
use crate::faults::Faults;
use crate::kv::{Keeps, KvMemory, SpillResult};
use crate::lanes::{Lanes, Warmth};
use crate::passes::{Ended, Passes};
use crate::speed::SpeedTimeline;
use duet_driver::World;
use duet_scheduler::machine::Shapes;
use duet_scheduler::{
    Command, End, Event, Generated, Kernel, Machine, Member, Outcome, PassId, Prefix, Request, SchedulerConfig, Yields,
};
use duet_types::{FinishReason, FlowId, Instant, KernelId, LaneSet, Nanos, RequestId, Tokens};
use std::collections::BTreeMap;

/// How the world truly is; the scheduler knows its configuration only.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// The machine.
    pub machine: Machine,
    /// How fast it is, against its anchors.
    pub speed: SpeedTimeline,
    /// Largest relative deviation of a kernel's time from its annotation.
    pub jitter: f64,
    /// Seed of the jitter.
    pub seed: u64,
    /// Writing a page to disk, or reading it.
    pub page_io: Nanos,
    /// What goes wrong.
    pub faults: Faults,
}

/// A world in virtual time.
#[derive(Clone, Debug)]
pub struct VirtualWorld {
    clients: Vec<Client>,
    nodes: usize,
    compile: Nanos,
    page_io: Nanos,
    failing_spills: Vec<u32>,
    lanes: Lanes,
    passes: Passes,
    kv: KvMemory,
    compiler: Compiler,
    agenda: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    requests: BTreeMap<RequestId, State>,
    ended: BTreeMap<RequestId, End>,
    spills: u32,
    /// Commands that may still come: more are a scheduler that goes round in circles.
    patience: u64,
    kernels: u64,
    now: Instant,
}

/// A request that was submitted and is not released.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    generated: Tokens,
    kernels: u32,
    cancelled: bool,
}

impl Truth {
    /// A world that is as the scheduler thinks.
    #[must_use]
    pub fn of(config: &SchedulerConfig) -> Self {
        let (machine, faults) = (config.machine.clone(), Faults::default());
        Self { machine, speed: SpeedTimeline::default(), jitter: 0.0, seed: 0, page_io: Nanos(100_000), faults }
    }
}

impl VirtualWorld {
    /// A world in which these clients will come.
    #[must_use]
    pub fn new(clients: Vec<Client>, config: &SchedulerConfig, truth: &Truth) -> Self {
        let compile = truth.machine.lanes.iter().find_map(|lane| match lane.shapes {
            Shapes::Static { compile } => Some(compile),
            Shapes::Dynamic => None,
        });
        let mut world = Self {
            nodes: config.heg.nodes(),
            compile: compile.unwrap_or_default(),
            page_io: truth.page_io,
            failing_spills: truth.faults.spills.clone(),
            lanes: Lanes::new(config.heg.clone(), config.limits.chunk, truth),
            passes: Passes::default(),
            kv: KvMemory::new(config.memory),
            compiler: Compiler::default(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            requests: BTreeMap::new(),
            ended: BTreeMap::new(),
            spills: 0,
            patience: 10_000 + clients.iter().map(|client| patience(client, config.heg.nodes())).sum::<u64>(),
            kernels: 0,
            now: Instant::default(),
            clients: Vec::new(),
        };
        for (index, client) in clients.iter().enumerate() {
            let id = RequestId(index as u64);
            let (class, prompt) = (client.class, client.prompt);
            let request = Request { id, flow: FlowId(id.0), class, prompt, prefix: None };
            world.schedule(client.arrives, Event::Submitted(request));
            if let Some(at) = client.cancelled {
                world.schedule(at, Event::Cancelled(id));
            }
        }
        truth.faults.lost.iter().for_each(|&(at, lane)| world.schedule(at, Event::LaneLost { lane }));
        world.clients = clients;
        world
    }

    /// The clients.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// How every request ended.
    #[must_use]
    pub fn ends(&self) -> &BTreeMap<RequestId, End> {
        &self.ended
    }

    /// Lanes that run nothing.
    #[must_use]
    pub fn idle(&self) -> LaneSet {
        self.lanes.idle()
    }

    /// Kernels that were launched.
    #[must_use]
    pub fn kernels(&self) -> u64 {
        self.kernels
    }

    fn client(&self, request: RequestId) -> &Client {
        &self.clients[request.0 as usize]
    }

    /// Ties go to what was scheduled first.
    fn schedule(&mut self, at: Instant, event: Event) {
        self.agenda.insert((at, self.scheduled), event);
        self.scheduled += 1;
    }

    /// Tokens that a client's prompt shares with an ended request's: less than the prompt, whose last row is needed.
    fn shared(&self, request: RequestId) -> Option<(RequestId, Tokens)> {
        let client = self.client(request);
        let continues = client.continues?;
        let shared = continues.shared.min(client.prompt - Tokens(1));
        Some((RequestId(continues.client as u64), shared))
    }

    fn submitted(&mut self, request: &mut Request) {
        let shared = self.shared(request.id);
        let kept = shared.and_then(|(of, tokens)| Some((of, tokens.min(self.kv.kept(of)?))));
        request.prefix = kept.filter(|(_, tokens)| *tokens > Tokens::ZERO).map(|(of, tokens)| Prefix { of, tokens });
        if let Some(continues) = self.client(request.id).continues {
            request.flow = FlowId(continues.client as u64);
        }
        self.requests.insert(request.id, State::default());
    }

    fn launch(&mut self, lanes: LaneSet, kernel: Kernel) {
        if self.passes.begins(&kernel) {
            self.begin_pass(&kernel);
        }
        self.passes.launch(&kernel, self.nodes);
        for member in &kernel.members {
            let state = self.requests.get_mut(&member.request);
            let state = state.unwrap_or_else(|| panic!("a kernel for {}, which is released", member.request));
            state.kernels += 1;
        }
        let wanted = kernel.members.iter().any(|member| !self.requests[&member.request].cancelled);
        assert!(wanted, "kernel {} is for requests that were all cancelled", kernel.id);
        let rows: Tokens = kernel.members.iter().map(Member::len).sum();
        let whole = kernel.rows == (0..rows.0);
        let warm = whole && kernel.members.iter().all(|member| self.compiler.is_ready(member.request, rows));
        self.kernels += 1;
        self.lanes.launch(self.now, lanes, kernel, if warm { Warmth::Warm } else { Warmth::Cold });
    }

    fn begin_pass(&mut self, kernel: &Kernel) {
        for member in &kernel.members {
            let request = member.request;
            let state = self.requests.get(&request).unwrap_or_else(|| panic!("a pass of {request}, which is released"));
            assert!(!state.cancelled, "a pass of {request}, which was cancelled");
            let known = self.client(request).prompt + state.generated;
            assert_eq!(member.rows.start, self.kv.computed(request), "where the rows of {request} begin");
            assert!(!member.is_empty() && member.rows.end <= known, "{request} has no rows {:?}", member.rows);
            assert_eq!(member.yields == Yields::Token, member.rows.end == known, "what the rows of {request} yield");
            assert_eq!(member.class, self.client(request).class, "the class of {request}");
            if let Some(old) = self.passes.pass_of(request) {
                self.leave(old);
            }
            self.kv.reserve(request, member.rows.end);
        }
    }

    /// A pass is given up between its kernels, and no member was spilled or discarded: allowed if nobody wants it.
    fn leave(&mut self, pass: PassId) {
        let (members, runs) = self.passes.members(pass);
        let wanted = |member: &Member| self.requests.get(&member.request).is_some_and(|state| !state.cancelled);
        assert!(!runs, "pass {pass} is given up while a kernel of it is on a lane");
        assert!(!members.iter().any(wanted), "pass {pass} is given up, and nothing failed");
        self.passes.undo(pass);
    }

    fn kernel_ended(&mut self, id: KernelId) -> Event {
        let kernel = self.lanes.end(self.now, id);
        let fails = kernel.members.iter().any(|member| {
            let ordinal = self.requests.get(&member.request).map_or(0, |state| state.kernels - 1);
            self.client(member.request).failing.fails(ordinal)
        });
        if fails {
            self.passes.undo(kernel.pass);
            return Event::KernelFailed { kernel: id };
        }
        let outcome = match self.passes.done(&kernel, self.nodes) {
            Ended::GoesOn => Outcome::Progressed,
            Ended::Complete(members) => {
                members.iter().for_each(|member| self.kv.computed_to(member.request, member.rows.end));
                let yielding = members.iter().filter(|member| member.yields == Yields::Token);
                Outcome::Tokens(yielding.map(|member| self.generate(member.request)).collect())
            }
        };
        Event::KernelDone { kernel: id, outcome }
    }

    fn generate(&mut self, request: RequestId) -> Generated {
        let output = self.client(request).output;
        let state = self.requests.get_mut(&request).expect("it runs");
        state.generated += Tokens(1);
        Generated { request, finished: (state.generated >= output).then_some(FinishReason::Stop) }
    }

    fn graph_compiled(&mut self) -> Event {
        let graph = self.compiler.compiled(self.now, self.compile);
        match self.client(graph.request).graph {
            Graphs::Compile => {
                self.compiler.load(graph);
                Event::GraphReady { graph: graph.id }
            }
            Graphs::Fail => Event::GraphFailed { graph: graph.id },
        }
    }

    fn restore(&mut self, request: RequestId) {
        assert!(self.requests.contains_key(&request), "{request} is restored, and is not there");
        let shared = self.shared(request);
        let found = self.kv.restore(request, shared);
        let at = self.now + Nanos(self.page_io.0 * found.read as u64);
        self.schedule(at, Event::Restored { request, cached: found.cached, source: found.source });
    }

    fn spill(&mut self, request: RequestId) {
        assert!(!self.runs(request), "{request} is spilled while it runs");
        // A pass that is given up for the pages of its members.
        if let Some(pass) = self.passes.pass_of(request) {
            self.passes.undo(pass);
        }
        let pages = self.kv.spill(request);
        let at = self.now + Nanos(self.page_io.0 * pages.unwrap_or(0) as u64);
        let fails = pages.is_none() || self.failing_spills.contains(&self.spills);
        self.spills += 1;
        self.schedule(at, if fails { Event::SpillFailed { request } } else { Event::Spilled { request } });
    }

    fn release(&mut self, request: RequestId, end: End) {
        assert!(!self.runs(request), "{request} is released while it runs");
        let state = self.requests.remove(&request);
        let state = state.unwrap_or_else(|| panic!("{request} is released, and is not there"));
        if let Some(pass) = self.passes.pass_of(request) {
            assert!(state.cancelled, "{request} is released in the middle of pass {pass}");
            self.passes.undo(pass);
        }
        assert!(!self.compiler.has_any(request), "{request} is released, but not its graph");
        self.kv.ended(request, if end == End::Failed { Keeps::Nothing } else { Keeps::All });
        let before = self.ended.insert(request, end);
        assert!(before.is_none(), "{request} was released twice");
    }

    fn discard(&mut self, request: RequestId) {
        assert!(!self.runs(request), "{request} is discarded while it runs");
        assert!(self.requests.contains_key(&request), "{request} is discarded, and is not there");
        if let Some(pass) = self.passes.pass_of(request) {
            self.passes.undo(pass);
        }
        self.kv.discard(request);
    }

    fn runs(&self, request: RequestId) -> bool {
        self.lanes.running().any(|kernel| kernel.members.iter().any(|member| member.request == request))
    }

    /// What the world itself has to know of an event that is about to be handed over.
    fn note(&mut self, event: &mut Event) {
        match event {
            Event::Submitted(request) => self.submitted(request),
            Event::Cancelled(request) => {
                if let Some(state) = self.requests.get_mut(request) {
                    state.cancelled = true;
                }
            }
            Event::LaneLost { lane } => {
                if let Some(kernel) = self.lanes.lose(self.now, *lane) {
                    self.passes.undo(kernel.pass);
                }
            }
            Event::Spilled { request } => self.kv.spilled(*request, SpillResult::Written),
            Event::SpillFailed { request } => self.kv.spilled(*request, SpillResult::Failed),
            _ => {}
        }
    }
}

/// Commands that a client is worth.
fn patience(client: &Client, nodes: usize) -> u64 {
    u64::from(client.prompt.0 + 4 * client.output.0) * nodes as u64 * 2
}

/// What may happen next; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Agenda(u64),
    Kernel(KernelId),
    Graph,
}

impl World for VirtualWorld {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let agenda = self.agenda.first_key_value().map(|(&(at, order), _)| (at, Next::Agenda(order)));
        let kernel = self.lanes.next().map(|(at, kernel)| (at, Next::Kernel(kernel)));
        let graph = self.compiler.next_at().map(|at| (at, Next::Graph));
        let (at, next) = [agenda, kernel, graph].into_iter().flatten().min()?;
        self.now = at;
        let mut event = match next {
            Next::Agenda(order) => self.agenda.remove(&(at, order)).expect("it is the first"),
            Next::Kernel(kernel) => self.kernel_ended(kernel),
            Next::Graph => self.graph_compiled(),
        };
        self.note(&mut event);
        Some((at, event))
    }

    fn apply(&mut self, now: Instant, command: Command) {
        assert_eq!(now, self.now, "commands come at the time of their event");
        assert!(self.patience > 0, "the requests come to no end");
        self.patience -= 1;
        match command {
            Command::Restore(request) => self.restore(request),
            Command::Launch { lanes, kernel, .. } => self.launch(lanes, kernel),
            Command::Prepare(graph) => self.compiler.prepare(now, graph, self.compile),
            Command::Reclaim(graph) => self.compiler.reclaim(now, graph, self.compile),
            Command::Spill(request) => self.spill(request),
            Command::Forget(request) => self.kv.forget(request),
            Command::Discard(request) => self.discard(request),
            Command::SetTimer { at, .. } => {
                assert!(at > now, "a timer is set for the past");
                self.schedule(at, Event::Timer);
            }
            Command::Release { request, end } => self.release(request, end),
        }
    }
}
