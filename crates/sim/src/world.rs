//! The virtual world: takes the scheduler's commands, answers in virtual time, and checks what it is asked.

mod graphs;
mod kernels;
mod memory;

use crate::answers::{Answers, KnownLengths};
use crate::checkers::Books;
use crate::client::{Client, Follows};
use crate::compiler::Compiler;
use crate::device_graphs::DeviceGraphs;
use crate::disk::{Disk, Stop};
use crate::kv::{Kept, KvMemory, SpillResult};
use crate::lanes::Lanes;
use crate::node_counts::NodeCounts;
use crate::passes::Passes;
use crate::truth::Truth;
use crate::watchdog::Watchdog;
use duet_driver::World;
use duet_scheduler::machine::ExactGraphs;
use duet_scheduler::{Command, End, Event, Pages, Prefix, Request, SchedulerConfig};
use duet_types::{FlowId, Instant, KernelId, LaneId, LaneSet, Nanos, RequestId, Tokens};
use graphs::Load;
use std::collections::BTreeMap;

/// A world in virtual time.
#[derive(Clone, Debug)]
pub struct VirtualWorld<A = KnownLengths> {
    clients: Vec<Client>,
    answers: A,
    nodes: NodeCounts,
    chunk: Tokens,
    exact: Option<ExactGraphs>,
    /// A prompt's graphs being loaded, when nothing disturbs that.
    graph_load: Option<Load>,
    page_io: Nanos,
    failing_spills: Vec<u32>,
    works_again: Vec<(Instant, LaneId)>,
    hang_timeout: f64,
    watchdog: Watchdog,
    lanes: Lanes,
    passes: Passes,
    kv: KvMemory,
    compiler: Compiler,
    disk: Disk,
    /// Of kernels on lanes that will give them back.
    stops: BTreeMap<KernelId, Stop>,
    /// For how long the ends of kernels wait for masks.
    waited: BTreeMap<KernelId, Nanos>,
    /// Of a device that exchanges its graphs, if there is one.
    graphs: Option<DeviceGraphs>,
    agenda: BTreeMap<(Instant, u64), Event>,
    scheduled: u64,
    requests: BTreeMap<RequestId, State>,
    ended: BTreeMap<RequestId, End>,
    /// The flow of every request that came.
    flows: BTreeMap<RequestId, FlowId>,
    /// Requests that are submitted so long after the end of another.
    followers: BTreeMap<RequestId, Vec<(RequestId, Nanos)>>,
    spills: u32,
    /// Commands that may still come: more are a scheduler that goes round in circles.
    patience: u64,
    kernels: u64,
    hangs: u64,
    now: Instant,
}

/// A request that was submitted and is not released.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    generated: Tokens,
    kernels: u32,
    cancelled: bool,
}

impl VirtualWorld {
    /// A world in which these clients will come, and get answers as long as they expect.
    #[must_use]
    pub fn new(clients: Vec<Client>, config: &SchedulerConfig, truth: &Truth) -> Self {
        let answers = KnownLengths::of(&clients);
        Self::with_answers(clients, config, truth, answers)
    }
}

impl<A: Answers> VirtualWorld<A> {
    /// A world in which these clients will come, and get these answers.
    #[must_use]
    pub fn with_answers(clients: Vec<Client>, config: &SchedulerConfig, truth: &Truth, answers: A) -> Self {
        let exact = truth.machine.lanes.iter().find_map(|lane| lane.capabilities.exact);
        let nodes = NodeCounts::of(config);
        let mut world = Self {
            nodes,
            chunk: config.limits.chunk,
            exact,
            graph_load: exact.zip(truth.graph_bytes_per_s).map(|(exact, bytes_per_s)| Load::of(&exact, bytes_per_s)),
            page_io: truth.page_io,
            failing_spills: truth.faults.spills.clone(),
            works_again: truth.faults.works_again.clone(),
            hang_timeout: truth.hang_timeout,
            watchdog: Watchdog::default(),
            lanes: Lanes::new(truth, config),
            passes: Passes::default(),
            kv: KvMemory::new(config.memory),
            compiler: Compiler::default(),
            disk: Disk::new(config.heg.clone(), truth.seed, truth.jitter),
            stops: BTreeMap::new(),
            waited: BTreeMap::new(),
            graphs: config
                .graphs
                .clone()
                .map(|graphs| DeviceGraphs::new(graphs, config.heg.clone(), truth.faults.graph_loads.clone())),
            agenda: BTreeMap::new(),
            scheduled: 0,
            requests: BTreeMap::new(),
            ended: BTreeMap::new(),
            flows: BTreeMap::new(),
            followers: BTreeMap::new(),
            spills: 0,
            patience: 10_000 + clients.iter().map(|client| patience(client, nodes)).sum::<u64>(),
            kernels: 0,
            hangs: 0,
            now: Instant::default(),
            clients: Vec::new(),
            answers,
        };
        for (index, client) in clients.iter().enumerate() {
            let id = RequestId(index as u64);
            match client.follows {
                Some(Follows { client, gap }) => {
                    world.followers.entry(RequestId(client as u64)).or_default().push((id, gap));
                }
                None => world.schedule(client.arrives, submission(id, client)),
            }
            if let Some(at) = client.cancelled {
                world.schedule(at, Event::Cancelled(id));
            }
        }
        truth.faults.lost.iter().for_each(|&(at, lane)| world.schedule(at, Event::LaneLost { lane }));
        for &(from, until, lane) in &truth.faults.slow {
            world.schedule(from, Event::LaneSlow { lane });
            world.schedule(until, Event::LaneBack { lane });
        }
        world.clients = clients;
        world
    }

    /// The clients.
    #[must_use]
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// What was computed.
    #[must_use]
    pub fn answers(&self) -> &A {
        &self.answers
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

    /// How memory stands beside what the scheduler thinks.
    #[must_use]
    pub fn books(&self, ledger: Pages) -> Books {
        let (used, on_disk) = self.kv.pages();
        Books { used, on_disk, live: self.kv.live(), ledger }
    }

    /// What became of KV.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.kv.kept_so_far()
    }

    /// Of these, kernels that hung.
    #[must_use]
    pub fn hangs(&self) -> u64 {
        self.hangs
    }

    /// For how long the graph compiler worked.
    #[must_use]
    pub fn compiled(&self) -> Nanos {
        self.compiler.worked()
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
        let (of, tokens) = self.answers.shared(request, client)?;
        Some((of, tokens.min(client.prompt - Tokens(1))))
    }

    fn submitted(&mut self, request: &mut Request) {
        let shared = self.shared(request.id);
        let kept = shared.and_then(|(of, tokens)| Some((of, self.kv.kept(of, tokens)?)));
        request.prefix = kept.filter(|(_, tokens)| *tokens > Tokens::ZERO).map(|(of, tokens)| Prefix { of, tokens });
        if let Some(continues) = self.client(request.id).continues {
            let before = RequestId(continues.client as u64);
            request.flow = self.flows.get(&before).copied().unwrap_or(FlowId(before.0));
        }
        self.flows.insert(request.id, request.flow);
        self.requests.insert(request.id, State::default());
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
                    self.left_device(kernel.id);
                    self.watchdog.forget(kernel.id);
                    self.undo(kernel.pass);
                }
            }
            Event::LaneBack { lane } => self.lanes.back(*lane),
            Event::DataReady { pass } => self.passes.data_ready(*pass),
            Event::Spilled { request } => self.kv.spilled(*request, SpillResult::Written),
            Event::SpillFailed { request } => self.kv.spilled(*request, SpillResult::Failed),
            Event::GraphLoaded { .. } => self.graphs.iter_mut().for_each(DeviceGraphs::loaded),
            Event::GraphLoadFailed { .. } => self.graphs.iter_mut().for_each(DeviceGraphs::load_failed),
            _ => {}
        }
    }
}

/// A client's request, as if it began a flow.
fn submission(id: RequestId, client: &Client) -> Event {
    let Client { class, prompt, head, net, .. } = *client;
    Event::Submitted(Request { id, flow: FlowId(id.0), class, prompt, prefix: None, head, net })
}

/// Commands that a client is worth.
fn patience(client: &Client, nodes: NodeCounts) -> u64 {
    u64::from(client.prompt.0 + 4 * client.output.0) * nodes.in_pass_of(client.net) as u64 * 2
}

/// What may happen next; in this order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Agenda(u64),
    Kernel(KernelId),
    Graph,
    Loaded,
    Hang(KernelId),
}

impl<A: Answers> World for VirtualWorld<A> {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let agenda = self.agenda.first_key_value().map(|(&(at, order), _)| (at, Next::Agenda(order)));
        let kernel = self.lanes.next(&self.watchdog).map(|(at, kernel)| (at, Next::Kernel(kernel)));
        let graph = self.compiler.next_at().map(|at| (at, Next::Graph));
        let hang = self.watchdog.next().map(|(at, kernel)| (at, Next::Hang(kernel)));
        let loaded = self.lanes.load_ends().map(|at| (at, Next::Loaded));
        let (at, next) = [agenda, kernel, graph, loaded, hang].into_iter().flatten().min()?;
        self.now = at;
        let mut event = match next {
            Next::Agenda(order) => match self.agenda.remove(&(at, order)).expect("it is the first") {
                Event::LaneLost { lane } if !self.lanes.can_lose(lane) && !self.lanes.is_lost(lane) => {
                    return self.next();
                }
                event => event,
            },
            Next::Kernel(kernel) => self.kernel_ended(kernel),
            Next::Graph => match self.graph_compiled() {
                Some(event) => event,
                None => return self.next(),
            },
            Next::Loaded => self.graph_loaded(),
            Next::Hang(kernel) => self.hung(kernel),
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
            Command::Prepare(graph) => {
                let time = self.client(graph.request).graph.compile_time(self.compiling(graph.rows));
                self.compiler.prepare(now, graph, time);
            }
            Command::Probe(lane) => self.probe(lane),
            Command::Reclaim(graph) => {
                if self.compiler.is_loading(graph) {
                    self.lanes.end_load(now);
                }
                self.compiler.reclaim(now, graph);
            }
            Command::LoadGraph(load) => {
                let graphs = self.graphs.as_mut().expect("graphs are loaded for a device that exchanges them");
                let (at, event) = graphs.load(now, load);
                self.schedule(at, event);
            }
            Command::Spill(request) => self.spill(request),
            Command::Forget(request) => {
                self.kv.forget(request);
                self.answers.dropped(request);
            }
            Command::Discard(request) => self.discard(request),
            Command::DropCopy { lane, request } => self.lanes.copies.dropped(lane, request),
            Command::SetTimer { at, .. } => {
                assert!(at > now, "a timer is set for the past");
                self.schedule(at, Event::Timer);
            }
            Command::Release { request, end } => self.release(request, end),
        }
    }
}
