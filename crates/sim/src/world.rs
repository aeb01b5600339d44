//! The virtual world: takes the scheduler's commands, answers in virtual time, and checks what it is asked.

use crate::answers::{Answers, KnownLengths};
use crate::checkers::Books;
use crate::client::{Client, Follows, Graphs};
use crate::compiler::Compiler;
use crate::device_graphs::DeviceGraphs;
use crate::disk::{Disk, Stop};
use crate::kv::{Keeps, Kept, KvMemory, SpillResult};
use crate::lanes::{Lanes, Warmth, Way};
use crate::node_counts::NodeCounts;
use crate::passes::{Ended, Passes};
use crate::truth::Truth;
use crate::watchdog::Watchdog;
use duet_driver::World;
use duet_scheduler::machine::ExactGraphs;
use duet_scheduler::{
    Command, Completes, End, Event, Kernel, Member, Outcome, Pages, PassId, Prefix, Request, SchedulerConfig, Yields,
};
use duet_types::{FlowId, Instant, KernelId, LaneId, LaneSet, Nanos, RequestId, Stage, Tokens};
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

/// Bytes that are brought into memory.
#[derive(Clone, Copy, Debug)]
struct Load {
    takes: Nanos,
    bytes_per_s: f64,
}

impl Load {
    fn of(graphs: &ExactGraphs, bytes_per_s: f64) -> Self {
        Self { takes: Nanos((graphs.bytes.0 as f64 / bytes_per_s * 1e9) as u64), bytes_per_s }
    }
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
        let kept = shared.and_then(|(of, tokens)| Some((of, tokens.min(self.kv.kept(of)?))));
        request.prefix = kept.filter(|(_, tokens)| *tokens > Tokens::ZERO).map(|(of, tokens)| Prefix { of, tokens });
        if let Some(continues) = self.client(request.id).continues {
            let before = RequestId(continues.client as u64);
            request.flow = self.flows.get(&before).copied().unwrap_or(FlowId(before.0));
        }
        self.flows.insert(request.id, request.flow);
        self.requests.insert(request.id, State::default());
    }

    fn launch(&mut self, lanes: LaneSet, kernel: Kernel) {
        if self.passes.begins(&kernel) {
            self.begin_pass(&kernel);
        }
        self.passes.launch(&kernel, self.nodes.in_pass_of(kernel.net()));
        for member in &kernel.members {
            let state = self.requests.get_mut(&member.request);
            let state = state.unwrap_or_else(|| panic!("a kernel for {}, which is released", member.request));
            state.kernels += 1;
        }
        let wanted = kernel.members.iter().any(|member| !self.requests[&member.request].cancelled);
        assert!(wanted, "kernel {} is for requests that were all cancelled", kernel.id);
        let rows: Tokens = kernel.members.iter().map(Member::len).sum();
        // A graph takes all rows of its prompt, or, chunks having gone before, those that remain.
        let whole = kernel.rows == (0..rows.0);
        let remainder = kernel.rows.end == rows.0 && kernel.rows.start == rows.0 - rows.0 % self.chunk.0;
        let warm =
            (whole || remainder) && kernel.members.iter().all(|member| self.compiler.is_ready(member.request, rows));
        self.kernels += 1;
        self.watch(&kernel);
        let slowdown = self.graphs.as_mut().map_or(1.0, |graphs| graphs.launch(lanes, &kernel));
        let warmth = if warm { Warmth::Warm } else { Warmth::Cold };
        let stop = self.disk.stop(&kernel);
        let end = stop.map_or(kernel.nodes.end, |stop| stop.node);
        self.stops.extend(stop.map(|stop| (kernel.id, stop)));
        let way = Way { nodes: kernel.nodes.start..end, warmth, slowdown };
        self.lanes.launch(self.now, lanes, kernel, &way);
    }

    /// Lets the watchdog wait for a kernel that will never end.
    fn watch(&mut self, kernel: &Kernel) {
        if kernel.members.iter().any(|member| self.client(member.request).hanging.affects(self.ordinal(member.request)))
        {
            let patience = Nanos((kernel.predicted.0 as f64 * self.hang_timeout) as u64);
            self.watchdog.watch(kernel.id, self.now + patience);
            self.hangs += 1;
        }
    }

    /// The number of a request's kernel that was launched last, counted from 0.
    fn ordinal(&self, request: RequestId) -> u32 {
        self.requests.get(&request).map_or(0, |state| state.kernels - 1)
    }

    fn begin_pass(&mut self, kernel: &Kernel) {
        for member in &kernel.members {
            let request = member.request;
            let state = self.requests.get(&request).unwrap_or_else(|| panic!("a pass of {request}, which is released"));
            assert!(!state.cancelled, "a pass of {request}, which was cancelled");
            let known = self.client(request).prompt + state.generated;
            assert_eq!(member.rows.start, self.kv.computed(request), "where the rows of {request} begin");
            // A draft follows the last token, as if it were known.
            let end = if member.stage == Stage::Verify { member.rows.start + Tokens(1) } else { member.rows.end };
            assert!(!member.is_empty() && end <= known, "{request} has no rows {:?}", member.rows);
            assert_eq!(member.yields == Yields::Token, end == known, "what the rows of {request} yield");
            assert_eq!(member.class, self.client(request).class, "the class of {request}");
            if let Some(old) = self.passes.pass_of(request) {
                self.leave(old);
            }
            if member.net.is_decoder() {
                self.kv.reserve(request, member.rows.end);
            }
        }
        self.answers.begins(kernel.pass, &kernel.members);
    }

    /// Gives a pass up.
    fn undo(&mut self, pass: PassId) {
        self.disk.forget(pass);
        self.passes.undo(pass);
        self.answers.undone(pass);
    }

    /// A pass is given up between its kernels, and no member was spilled or discarded: allowed if nobody wants it.
    fn leave(&mut self, pass: PassId) {
        let (members, runs) = self.passes.members(pass);
        let wanted = |member: &Member| self.requests.get(&member.request).is_some_and(|state| !state.cancelled);
        assert!(!runs, "pass {pass} is given up while a kernel of it is on a lane");
        assert!(!members.iter().any(wanted), "pass {pass} is given up, and nothing failed");
        self.undo(pass);
    }

    fn kernel_ended(&mut self, id: KernelId) -> Event {
        let kernel = self.lanes.end(self.now, id);
        self.left_device(id);
        let stop = self.stops.remove(&id);
        let fails = |member: &Member| self.client(member.request).failing.affects(self.ordinal(member.request));
        if kernel.members.iter().any(fails) {
            self.undo(kernel.pass);
            return Event::KernelFailed { kernel: id };
        }
        if let Some(Stop { node, about, takes }) = stop {
            if self.passes.waits(&kernel, node) {
                let nodes = kernel.nodes.start..node;
                if !nodes.is_empty() {
                    self.answers.ran(&Kernel { nodes, completes: Completes::Span, ..kernel.clone() });
                }
                self.schedule(self.now + takes, Event::DataReady { pass: kernel.pass });
            }
            return Event::KernelDone { kernel: id, outcome: Outcome::Waits { node, about } };
        }
        self.answers.ran(&kernel);
        let outcome = match self.passes.done(&kernel, self.nodes.in_pass_of(kernel.net())) {
            Ended::GoesOn => Outcome::Progressed,
            Ended::Complete(members) => {
                self.disk.forget(kernel.pass);
                let generated = self.answers.complete(kernel.pass, &members);
                for new in &generated {
                    self.requests.get_mut(&new.request).expect("it runs").generated += new.tokens;
                }
                for member in members.iter().filter(|member| member.net.is_decoder()) {
                    let new = generated.iter().find(|new| new.request == member.request);
                    let new = new.map_or(Tokens::ZERO, |new| new.tokens);
                    self.kv.computed_to(member.request, member.computed(new));
                }
                Outcome::Tokens(generated)
            }
        };
        Event::KernelDone { kernel: id, outcome }
    }

    /// Somebody looks whether a lost lane works again. One that never will gives no answer, so that time comes to an end.
    fn probe(&mut self, lane: LaneId) {
        let Some(&(at, _)) = self.works_again.iter().find(|(_, of)| *of == lane) else { return };
        let event = if at <= self.now { Event::LaneBack { lane } } else { Event::LaneLost { lane } };
        self.schedule(self.now + PROBE, event);
    }

    /// A kernel hangs: its lane is given up if there is another one, and itself if there is not.
    fn hung(&mut self, id: KernelId) -> Event {
        let lane = self.lanes.leader(id);
        if self.lanes.can_lose(lane) {
            return Event::LaneLost { lane };
        }
        self.watchdog.forget(id);
        let kernel = self.lanes.end(self.now, id);
        self.left_device(id);
        self.undo(kernel.pass);
        Event::KernelFailed { kernel: id }
    }

    /// No graph is in use by this kernel any more.
    fn left_device(&mut self, kernel: KernelId) {
        self.graphs.iter_mut().for_each(|graphs| graphs.ended(kernel));
    }

    /// A graph is compiled, and may have to be loaded before anything is to be told.
    fn graph_compiled(&mut self) -> Option<Event> {
        let graph = self.compiler.compiled(self.now);
        match (self.client(graph.request).graph, self.graph_load) {
            (Graphs::Fail, _) => {
                self.compiler.failed(self.now);
                Some(Event::GraphFailed { graph: graph.id })
            }
            (Graphs::Compile | Graphs::Slow(_), None) => Some(self.graph_loaded()),
            (Graphs::Compile | Graphs::Slow(_), Some(load)) => {
                self.lanes.load(self.now, load.takes, load.bytes_per_s);
                None
            }
        }
    }

    fn graph_loaded(&mut self) -> Event {
        self.lanes.end_load(self.now);
        Event::GraphReady { graph: self.compiler.loaded(self.now).id }
    }

    /// How long a graph is compiled, without being loaded where that is apart.
    fn compiling(&self, rows: Tokens) -> Nanos {
        let whole = self.exact.map_or(Nanos::ZERO, |exact| exact.ready_after(rows));
        whole.saturating_sub(self.graph_load.map_or(Nanos::ZERO, |load| load.takes))
    }

    fn restore(&mut self, request: RequestId) {
        assert!(self.requests.contains_key(&request), "{request} is restored, and is not there");
        let shared = self.shared(request);
        let found = self.kv.restore(request, shared);
        self.answers.placed(request, found.cached, found.source);
        let at = self.now + Nanos(self.page_io.0 * found.read as u64);
        self.schedule(at, Event::Restored { request, cached: found.cached, source: found.source });
    }

    fn spill(&mut self, request: RequestId) {
        assert!(!self.runs(request), "{request} is spilled while it runs");
        // A pass that is given up for the pages of its members.
        if let Some(pass) = self.passes.pass_of(request) {
            self.undo(pass);
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
            self.undo(pass);
        }
        assert!(!self.compiler.has_any(request), "{request} is released, but not its graph");
        let keeps = if end == End::Failed { Keeps::Nothing } else { Keeps::All };
        self.kv.ended(request, keeps);
        match keeps {
            Keeps::All => self.answers.kept(request),
            Keeps::Nothing => self.answers.dropped(request),
        }
        let before = self.ended.insert(request, end);
        assert!(before.is_none(), "{request} was released twice");
        for (next, gap) in self.followers.remove(&request).unwrap_or_default() {
            let (at, client) = (self.now + gap, self.client(next));
            if client.cancelled.is_none_or(|cancelled| at < cancelled) {
                self.schedule(at, submission(next, client));
            }
        }
    }

    fn discard(&mut self, request: RequestId) {
        assert!(!self.runs(request), "{request} is discarded while it runs");
        assert!(self.requests.contains_key(&request), "{request} is discarded, and is not there");
        if let Some(pass) = self.passes.pass_of(request) {
            self.undo(pass);
        }
        self.kv.discard(request);
        self.answers.discarded(request);
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

/// A probe of a lane runs a small kernel.
const PROBE: Nanos = Nanos(1_000_000);

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
            Command::SetTimer { at, .. } => {
                assert!(at > now, "a timer is set for the past");
                self.schedule(at, Event::Timer);
            }
            Command::Release { request, end } => self.release(request, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines;
    use duet_scheduler::{Graph, GraphId};
    use duet_types::{Bytes, Class};

    /// Loading is a part of what the lane says that its graphs take, and is apart where its rate is known.
    #[test]
    fn a_graph_is_ready_when_it_is_compiled_and_loaded() {
        let ready = |graph_bytes_per_s: Option<f64>, reclaim: bool| {
            let mut config = machines::npu_igpu();
            let exact = config.machine.lanes[0].capabilities.exact.as_mut().unwrap();
            (exact.compile_per_row, exact.bytes) = (Nanos(1_000), Bytes(3_000_000));
            let truth = Truth { graph_bytes_per_s, ..Truth::of(&config) };
            let mut world = VirtualWorld::new(vec![Client::new(Class::Reactive, 100, 1)], &config, &truth);
            world.next().unwrap();
            let graph = |id| Graph { id: GraphId(id), request: RequestId(0), rows: Tokens(100) };
            world.apply(Instant(0), Command::Prepare(graph(0)));
            if reclaim {
                world.apply(Instant(0), Command::Prepare(graph(1)));
                world.apply(Instant(0), Command::Reclaim(GraphId(0)));
            }
            world.next().unwrap()
        };
        let at = |id| (Instant(5_100_000), Event::GraphReady { graph: GraphId(id) });
        assert_eq!(ready(None, false), at(0));
        assert_eq!(ready(Some(1e9), false), at(0));
        assert_eq!(ready(Some(1e9), true), at(1));
    }
}
