//! A small virtual world around the real scheduler, for observers to look at.
//!
//! It has two dynamic lanes that form a team, charges what is predicted, and keeps what is awkward: clients cancel,
//! kernels fail and spills fail.

use duet_driver::{Observed, Observer, World, step};
use duet_scheduler::heg::{Heg, SequenceWise, TokenWise};
use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, Machine, PerRow};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{
    Command, Event, Generated, HeadRows, Kernel, Limits, Mechanisms, MemoryLimits, Outcome, PassId, Request, Scheduler,
    SchedulerConfig, StatePages, WindowPages, Yields,
};
use duet_types::{Class, FinishReason, FlowId, Instant, KernelId, Nanos, Net, RequestId, Tokens};
use std::collections::BTreeMap;

/// A client: when it comes, what it wants, and when it goes.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) at_us: u64,
    pub(crate) class: Class,
    pub(crate) prompt: u32,
    pub(crate) answer: u32,
    pub(crate) cancels_at_us: Option<u64>,
}

/// What goes wrong: every n-th of these, if given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) kernels: Option<u64>,
    pub(crate) spills: Option<u64>,
}

pub(crate) fn config(pages: usize) -> SchedulerConfig {
    let anchors = |factor: f64| Anchors {
        macs_per_s: factor * 1e11,
        attention_macs_per_s: factor * 1e10,
        bytes_per_s: factor * 1e10,
        launch: Nanos(5_000),
        exposed: 0.2,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    };
    let lane = |name: &str| Lane::new(name, Capabilities::CORES, anchors(1.0));
    let linear = |macs: f64| TokenWise { macs_per_row: macs, weight_bytes: macs, row_bytes: 1e3, routed: None };
    SchedulerConfig {
        machine: Machine::of(vec![lane("cpu0"), lane("cpu1")]).with_team(anchors(1.9)),
        heg: Heg {
            layers: 2,
            qkv: linear(1e6),
            ffn: linear(4e6),
            attention: SequenceWise { macs_per_pair: 1e3, bytes_per_position: 1e3, row_bytes: 1e3, windowed: None },
            head: linear(8e6),
            experts: None,
            for_head: None,
        },
        encoder: None,
        limits: Limits { chunk: Tokens(32), prefill_rows: Tokens(32), ..Limits::default() },
        memory: MemoryLimits {
            page: Tokens(16),
            pages,
            disk_pages: pages,
            states: StatePages::NONE,
            windows: WindowPages::NONE,
        },
        mechanisms: Mechanisms::ALL,
        graphs: None,
    }
}

/// Runs `clients` to the end; `check` sees the scheduler and the observer after each event.
pub(crate) fn run<O: Observer>(
    policy: PolicyName,
    config: SchedulerConfig,
    clients: &[Client],
    faults: Faults,
    observer: O,
    mut check: impl FnMut(&Scheduler, &O),
) -> O {
    let mut world = Observed { world: Virtual::new(clients, faults, config.heg.nodes()), observer };
    let mut scheduler = Scheduler::new(config, policy.policy());
    for events in 0.. {
        let Some((now, event)) = world.next() else { break };
        assert!(events < EVENTS_MAX, "{policy} does not come to an end");
        step(&mut scheduler, &mut world, now, event);
        check(&scheduler, &world.observer);
    }
    assert_eq!(world.world.released, clients.len(), "every request ends");
    world.observer
}

struct Virtual {
    clients: Vec<Client>,
    faults: Faults,
    now: Instant,
    /// What will happen, by time and order.
    agenda: BTreeMap<(Instant, u64), Event>,
    order: u64,
    running: BTreeMap<KernelId, Kernel>,
    /// For each pass the next node, and the rows of it that are done.
    passes: BTreeMap<PassId, (usize, u32)>,
    nodes: usize,
    generated: BTreeMap<RequestId, u32>,
    /// Positions whose keys and values there are.
    computed: BTreeMap<RequestId, Tokens>,
    spills: u64,
    released: usize,
}

impl Virtual {
    fn new(clients: &[Client], faults: Faults, nodes: usize) -> Self {
        let mut world = Self {
            clients: clients.to_vec(),
            faults,
            now: Instant::default(),
            agenda: BTreeMap::new(),
            order: 0,
            running: BTreeMap::new(),
            passes: BTreeMap::new(),
            nodes,
            generated: BTreeMap::new(),
            computed: BTreeMap::new(),
            spills: 0,
            released: 0,
        };
        for (index, client) in clients.iter().enumerate() {
            let id = RequestId(index as u64);
            let request = Request {
                id,
                flow: FlowId(id.0),
                class: client.class,
                prompt: Tokens(client.prompt),
                prefix: None,
                head: HeadRows::Last,
                net: Net::Decoder,
            };
            world.plan(Nanos(client.at_us * 1000), Event::Submitted(request));
            if let Some(at_us) = client.cancels_at_us {
                world.plan(Nanos(at_us * 1000), Event::Cancelled(id));
            }
        }
        world
    }

    fn plan(&mut self, after: Nanos, event: Event) {
        self.order += 1;
        self.agenda.insert((self.now + after, self.order), event);
    }

    /// What came of a kernel that did not fail.
    fn outcome(&mut self, kernel: &Kernel) -> Outcome {
        let all: u32 = kernel.members.iter().map(|member| member.len().0).sum();
        let (node, rows) = self.passes.entry(kernel.pass).or_default();
        *rows += kernel.rows.end - kernel.rows.start;
        if *rows == all {
            (*node, *rows) = (kernel.nodes.end, 0);
        }
        if *node < self.nodes {
            return Outcome::Progressed;
        }
        self.computed.extend(kernel.members.iter().map(|member| (member.request, member.rows.end)));
        let yielding = kernel.members.iter().filter(|member| member.yields == Yields::Token);
        let token = |request: RequestId| {
            let generated = self.generated.entry(request).or_default();
            *generated += 1;
            let finished = (*generated >= self.clients[request.0 as usize].answer).then_some(FinishReason::Stop);
            Generated::one(request, finished)
        };
        Outcome::Tokens(yielding.map(|member| member.request).map(token).collect())
    }
}

impl World for Virtual {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let ((at, _), mut event) = self.agenda.pop_first()?;
        self.now = at;
        if let Event::KernelDone { kernel, outcome } = &mut event {
            let ended = self.running.remove(kernel).expect("it runs");
            *outcome = self.outcome(&ended);
        }
        Some((at, event))
    }

    fn apply(&mut self, _: Instant, command: Command) {
        match command {
            Command::Restore(request) => {
                let cached = self.computed.get(&request).copied().unwrap_or_default();
                self.plan(Nanos(1_000), Event::Restored { request, cached, source: None });
            }
            Command::Launch { kernel, .. } => {
                let (id, time) = (kernel.id, kernel.predicted);
                if self.faults.kernels.is_some_and(|every| id.0 % every == every - 1) {
                    self.plan(time, Event::KernelFailed { kernel: id });
                } else {
                    self.running.insert(id, kernel);
                    self.plan(time, Event::KernelDone { kernel: id, outcome: Outcome::Progressed });
                }
            }
            Command::Spill(request) => {
                self.spills += 1;
                let fails = self.faults.spills.is_some_and(|every| self.spills.is_multiple_of(every));
                let event = if fails { Event::SpillFailed { request } } else { Event::Spilled { request } };
                self.plan(Nanos(50_000), event);
            }
            Command::Discard(request) => drop(self.computed.remove(&request)),
            Command::SetTimer { at, .. } => {
                self.order += 1;
                self.agenda.insert((at, self.order), Event::Timer);
            }
            Command::Release { .. } => self.released += 1,
            Command::Forget(_)
            | Command::DropCopy { .. }
            | Command::Reclaim(_)
            | Command::Probe(_)
            | Command::LoadGraph(_) => {}
            Command::Prepare(graph) => self.plan(Nanos(1_000), Event::GraphFailed { graph: graph.id }),
        }
    }
}

/// Far beyond what the clients of these tests cause.
const EVENTS_MAX: usize = 1_000_000;
