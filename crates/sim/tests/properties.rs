//! What holds in every scenario, on every machine, under every policy and fault. The world itself checks every command
//! (lanes, shapes, rows, nodes, pages, releases); a violation is its panic.

use duet_driver::{EventLog, Header, Observer, replay};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, End, Event, Generated, Mechanism, Member, PassId, SchedulerConfig, Source, Yields};
use duet_sim::{Answers, Client, Continues, Failing, Graphs, Metrics, Recorded, Scenario, machines};
use duet_types::{Bytes, Class, FinishReason, Instant, LaneId, Nanos, RequestId, Tokens};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn client() -> impl Strategy<Value = Client> {
    let times = (0..60_000_000_u64, prop::option::weighted(0.25, 0..90_000_000_u64));
    let failing = prop_oneof![
        8 => Just(Failing::Never),
        1 => (0..12_u32).prop_map(Failing::Once),
        1 => (0..12_u32).prop_map(Failing::From),
    ];
    let graph = prop_oneof![4 => Just(Graphs::Compile), 1 => Just(Graphs::Fail)];
    let continues = prop::option::weighted(0.4, (0..8_usize, prop_oneof![Just(u32::MAX), 1..200_u32]));
    let sizes = (1..420_u32, 1..12_u32);
    (times, sizes, any::<bool>(), failing, graph, continues).prop_map(
        |((arrives, cancelled), (prompt, output), reactive, failing, graph, continues)| Client {
            arrives: Instant(arrives),
            continues: continues.map(|(client, shared)| Continues { client, shared: Tokens(shared) }),
            // Also before it arrives, and after it ended.
            cancelled: cancelled.map(Instant),
            failing,
            graph,
            ..Client::new(if reactive { Class::Reactive } else { Class::Proactive }, prompt, output)
        },
    )
}

fn policy() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(PolicyName::ALL.to_vec())
}

fn machine() -> impl Strategy<Value = SchedulerConfig> {
    let machine = prop_oneof![
        Just(machines::npu_igpu()),
        Just(machines::cpu()),
        Just(machines::single()),
        (0..3_u64).prop_map(|spare| machines::exchanging(Bytes(spare))),
        Just(machines::launching()),
    ];
    let limits = (20..130_u32, 1..9_usize, 1..4_usize, 0..200_u64, 0..80_u64);
    // Some memory is scarce, but enough for the longest request alone; pages are of ten positions.
    let memory = (prop::option::of(45..120_usize), prop_oneof![Just(0), 0..200_usize]);
    let without = prop::option::of(prop::sample::select(Mechanism::ALL.to_vec()));
    (machine, limits, memory, without).prop_map(
        |(mut config, (chunk, batch, cap, age, stall), (pages, disk), without)| {
            let limits = &mut config.limits;
            (limits.chunk, limits.batch, limits.batch_cap) = (Tokens(chunk), batch, cap);
            limits.prefill_rows = limits.prefill_rows.max(Tokens(chunk + batch as u32));
            (limits.age, limits.decode_stall) = (Nanos(age * 1_000_000), Nanos(stall * 1_000_000));
            if let Some(pages) = pages {
                (config.memory.pages, config.memory.disk_pages) = (pages, disk);
            }
            if let Some(mechanism) = without {
                config.mechanisms = config.mechanisms.without(mechanism);
            }
            config
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let clients = prop::collection::vec(client(), 0..14);
    let lost = prop::option::weighted(0.1, 0..80_000_000_u64);
    let faults = || prop::collection::vec(0..4_u32, 0..2);
    let jitter = prop_oneof![Just(0.0), 0.0..0.5];
    (policy(), machine(), clients, (lost, faults(), faults(), jitter, any::<u64>())).prop_map(
        |(policy, config, mut clients, (lost, spills, graph_loads, jitter, seed))| {
            // A prompt continues an earlier one.
            for (index, client) in clients.iter_mut().enumerate() {
                client.name = index.to_string();
                client.continues = client.continues.filter(|continues| continues.client < index);
            }
            let mut scenario = Scenario { clients, ..Scenario::new(policy, config) };
            if scenario.config.machine.lanes.len() > 1 {
                scenario.truth.faults.lost = lost.map(|at| (Instant(at), LaneId(0))).into_iter().collect();
            }
            scenario.truth.faults.graph_loads = graph_loads;
            (scenario.truth.faults.spills, scenario.truth.jitter, scenario.truth.seed) = (spills, jitter, seed);
            scenario
        },
    )
}

/// Nothing to see.
struct Blind;

impl Observer for Blind {
    fn event(&mut self, _: Instant, _: &Event) {}
    fn command(&mut self, _: Instant, _: &Command) {}
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_exactly_once_and_as_it_should(scenario in scenario()) {
        let world = scenario.run(Blind).world;
        // That none ends twice is asserted by the world.
        prop_assert_eq!(world.ends().len(), scenario.clients.len());
        prop_assert_eq!(world.idle().len() + scenario.truth.faults.lost.len(), scenario.config.machine.lanes.len());
        for (request, end) in world.ends() {
            let client = &scenario.clients[request.0 as usize];
            match end {
                End::Finished(FinishReason::Stop) => {
                    prop_assert!(!matches!(client.failing, Failing::From(0)), "{} cannot have run", request);
                }
                End::Finished(FinishReason::Cancelled) => prop_assert!(client.cancelled.is_some()),
                End::Finished(FinishReason::Length) => prop_assert!(false, "{} fits into memory", request),
                End::Failed => prop_assert!(client.failing != Failing::Never, "{} never failed", request),
            }
        }
    }

    #[test]
    fn a_replayed_log_gives_the_same_commands(scenario in scenario()) {
        let first = log(&scenario);
        prop_assert!(first == log(&scenario), "the same scenario went two ways");
        let replayed = replay(&first[..]).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(replayed.events >= scenario.clients.len());
    }

    /// What a log says of its clients is enough to have the same run again, to the byte.
    #[test]
    fn a_recorded_run_is_simulated_again_as_it_was(scenario in policy().prop_flat_map(undisturbed)) {
        let mut scenario = scenario;
        // An engine numbers its requests as they come.
        scenario.clients.sort_by_key(|client| client.arrives);
        let first = log(&scenario);
        let recorded = Recorded::read(&first[..]).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(log(&recorded.scenario()) == first, "{scenario:?}");
    }
}

/// The event log of a scenario.
fn log(scenario: &Scenario) -> Vec<u8> {
    let mut log = Vec::new();
    let header = Header { policy: scenario.policy, config: scenario.config.clone(), profiled: None };
    scenario.run(EventLog::begin(&mut log, &header).unwrap());
    log
}

/// Scenarios without faults and with memory for all, for bounds on time.
fn undisturbed(policy: PolicyName) -> impl Strategy<Value = Scenario> {
    let sizes = (any::<bool>(), 1..400_u32, 1..12_u32, 0..60_000_000_u64);
    let clients = prop::collection::vec(sizes, 1..14);
    let machine = prop_oneof![Just(machines::npu_igpu()), Just(machines::cpu()), Just(machines::single())];
    (clients, machine, 4..12_u64).prop_map(move |(clients, mut config, preempt)| {
        config.limits.preempt = Nanos(preempt * 1_000_000);
        let clients = clients.into_iter().enumerate().map(|(index, (reactive, prompt, output, at))| {
            let class = if reactive { Class::Reactive } else { Class::Proactive };
            Client { name: index.to_string(), arrives: Instant(at), ..Client::new(class, prompt, output) }
        });
        Scenario { clients: clients.collect(), ..Scenario::new(policy, config) }
    })
}

/// Asks after every event whether a lane is idle although there is work.
struct Conserving {
    scenario: Scenario,
    submitted: i64,
    idle_since: Option<Instant>,
    running: i64,
    idle: Nanos,
}

impl Observer for Conserving {
    fn event(&mut self, now: Instant, event: &Event) {
        if let Some(since) = self.idle_since.take() {
            self.idle = Nanos(self.idle.0 + (now - since).0);
        }
        match event {
            Event::Submitted(_) => self.submitted += 1,
            Event::KernelDone { .. } => self.running -= 1,
            _ => {}
        }
        // Until a kernel is launched; commands of the same time end it at no cost.
        if self.submitted > 0 && self.running == 0 {
            self.idle_since = Some(now);
        }
    }

    fn command(&mut self, _: Instant, command: &Command) {
        match command {
            Command::Launch { .. } => {
                self.running += 1;
                self.idle_since = None;
            }
            Command::Release { .. } => {
                self.submitted -= 1;
                if self.submitted == 0 {
                    self.idle_since = None;
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// From the submission of a reactive request to its first kernel, when no other one is there: at most the bound.
    #[test]
    fn preemption_is_bounded(scenario in undisturbed(PolicyName::Duet)) {
        let metrics = scenario.run(Metrics::default()).observer;
        for (index, client) in scenario.clients.iter().enumerate() {
            if client.class != Class::Reactive {
                continue;
            }
            let wait = metrics.wait(RequestId(index as u64)).unwrap();
            let others = scenario.clients.iter().enumerate().filter(|(other, client)| {
                *other != index && client.class == Class::Reactive
            });
            let spans = others.map(|(other, client)| (client.arrives, metrics.latency(RequestId(other as u64)).unwrap()));
            // Those that came before, and those that came while it waited: the shortest prompt may be first.
            let beside = spans.filter(|(at, latency)| *at <= client.arrives + wait && *at + *latency >= client.arrives);
            if beside.count() == 0 {
                prop_assert!(wait <= scenario.config.limits.preempt, "{} waited {:?}", index, wait);
            }
        }
    }

    /// No moment passes in which a request is there and nothing runs.
    #[test]
    fn work_is_conserved(
        scenario in prop_oneof![
            undisturbed(PolicyName::Duet), undisturbed(PolicyName::CpuBatching), undisturbed(PolicyName::PriorityOnly)
        ],
    ) {
        let observer = Conserving { scenario, submitted: 0, idle_since: None, running: 0, idle: Nanos::ZERO };
        let observer = observer.scenario.clone().run(observer).observer;
        prop_assert_eq!(observer.idle, Nanos::ZERO);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 16, ..ProptestConfig::default() })]

    /// With reactive load above capacity every proactive request ends within `age + work / share`. Work is lane time: what
    /// all the proactive requests take one after another (under `serial`), twice, since a kernel on one of two lanes does
    /// half as much; and the kernels that have to be owed in full before they run, or that are under way.
    #[test]
    fn nobody_starves(
        background in prop::collection::vec((1..200_u32, 1..6_u32, 0..10_000_000_u64), 1..5),
        (policy, config) in prop_oneof![
            Just((PolicyName::Duet, machines::npu_igpu())),
            Just((PolicyName::Duet, machines::cpu())),
            Just((PolicyName::Duet, machines::single())),
            Just((PolicyName::AgentXpu, machines::single())),
        ],
        prompt in 20..300_u32,
    ) {
        let mut config = config;
        config.limits.age = Nanos(20_000_000);
        let mut clients: Vec<Client> = background
            .iter()
            .map(|&(prompt, output, at)| Client { arrives: Instant(at), ..Client::new(Class::Proactive, prompt, output) })
            .collect();
        let count = clients.len();
        // One every millisecond, each of which takes several.
        clients.extend((0..600).map(|at| Client {
            arrives: Instant(at * 1_000_000),
            ..Client::new(Class::Reactive, prompt, 2)
        }));
        let alone = Scenario {
            clients: clients[..count].to_vec(),
            ..Scenario::new(PolicyName::Serial, machines::npu_igpu())
        };
        let alone_ends = alone.run(Metrics::default()).observer;
        let work: u64 = (0..count).map(|index| alone_ends.latency(RequestId(index as u64)).unwrap().0).max().unwrap();
        let scenario = Scenario { clients, ..Scenario::new(policy, config.clone()) };
        let metrics = scenario.run(Metrics::default()).observer;
        let kernels = 2 * config.limits.preempt.0 + 20_000_000;
        let bound = config.limits.age.0 + ((2 * work + kernels) as f64 / config.limits.overdue_share) as u64;
        for index in 0..count {
            let latency = metrics.latency(RequestId(index as u64)).unwrap();
            prop_assert!(latency.0 <= bound, "{} took {:?}, and the bound is {}", index, latency, bound);
        }
    }
}

/// Some long reactive prompts, some background work, and short reactive prompts that come faster than they can be read.
fn crowded() -> impl Strategy<Value = Scenario> {
    let long = prop::collection::vec((150..400_u32, 1..4_u32, 0..20_000_000_u64), 1..3);
    let background = prop::collection::vec((1..200_u32, 1..6_u32, 0..20_000_000_u64), 0..3);
    let short = (10..60_u32, 1..3_u32);
    let policy = prop_oneof![2 => Just(PolicyName::Duet), 1 => Just(PolicyName::AgentXpu)];
    let machine =
        prop_oneof![2 => Just(machines::npu_igpu()), 1 => Just(machines::cpu()), 1 => Just(machines::single())];
    (policy, machine, long, background, short, 0..60_000_000_u64).prop_map(
        |(policy, mut config, long, background, (prompt, output), overtaking)| {
            config.limits.overtaking = Nanos(overtaking);
            let come = |class, all: Vec<(u32, u32, u64)>| {
                all.into_iter().map(move |(prompt, output, at)| Client {
                    arrives: Instant(at),
                    ..Client::new(class, prompt, output)
                })
            };
            let stream = (0..300).map(|at| (prompt, output, at * 1_000_000)).collect();
            let clients = come(Class::Reactive, long).chain(come(Class::Proactive, background));
            let mut clients: Vec<Client> = clients.chain(come(Class::Reactive, stream)).collect();
            clients.sort_by_key(|client| client.arrives);
            for (index, client) in clients.iter_mut().enumerate() {
                client.name = index.to_string();
            }
            Scenario { clients, ..Scenario::new(policy, config) }
        },
    )
}

/// What the reactive clients up to one of them take one after another, and one that comes after it.
fn work_before(clients: &[Client], index: usize) -> Nanos {
    let reactive = |client: &&Client| client.class == Class::Reactive;
    let before = clients[..=index].iter().filter(reactive);
    let younger = clients[index + 1..].iter().find(reactive);
    let clients: Vec<Client> =
        before.chain(younger).map(|client| Client { arrives: Instant::default(), ..client.clone() }).collect();
    let count = clients.len();
    let alone = Scenario { clients, ..Scenario::new(PolicyName::Serial, machines::npu_igpu()) };
    let metrics = alone.run(Metrics::default()).observer;
    (0..count).map(|index| metrics.latency(RequestId(index as u64)).unwrap()).max().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 32, ..ProptestConfig::default() })]

    /// However many short prompts keep coming, a reactive request has its first token within
    ///
    /// ```text
    /// overtaking + 3 (work of the reactive ones before it, its own, and that of one after it) / (1 - share) + kernels
    /// ```
    ///
    /// where nothing is overtaken in the order of arrival. Work is what they take one after another; thrice, since a
    /// kernel on one of two lanes does half as much, and streams may not stop; the kernels are those of background work.
    #[test]
    fn no_reactive_prompt_starves(scenario in crowded()) {
        let metrics = scenario.run(Metrics::default()).observer;
        let limits = &scenario.config.limits;
        let apart = scenario.policy == PolicyName::Duet && scenario.config.machine == machines::npu_igpu().machine;
        let overtaking = if apart { limits.overtaking.0 } else { 0 };
        for (index, client) in scenario.clients.iter().enumerate() {
            if client.class == Class::Proactive || client.prompt < Tokens(100) {
                continue;
            }
            let wait = metrics.ttft(RequestId(index as u64)).unwrap();
            let work = 3.0 * work_before(&scenario.clients, index).0 as f64 / (1.0 - limits.overdue_share);
            let bound = overtaking + work as u64 + 2 * limits.preempt.0;
            prop_assert!(wait.0 <= bound, "{} waited {:?}, and the bound is {}", index, wait, bound);
        }
    }
}

/// Answers that depend on everything that KV holds: a token is a digest of all positions before it. What a request has
/// is moved, copied and cut as the world says, and nothing else is known of it.
struct Contents {
    sequences: Vec<Sequence>,
    /// What the members had before the pass, in their order.
    passes: BTreeMap<PassId, Vec<(RequestId, Vec<u64>)>>,
}

struct Sequence {
    tokens: Vec<u64>,
    len_max: usize,
    kv: Option<Vec<u64>>,
    kept: bool,
}

impl Contents {
    /// Prompts that begin as the clients say, with the answers of those that they continue.
    fn of(clients: &[Client]) -> Self {
        let mut whole: Vec<Vec<u64>> = Vec::new();
        let mut sequences = Vec::new();
        for (index, client) in clients.iter().enumerate() {
            let prompt = client.prompt.as_usize();
            let shared = client.continues.map_or(&[][..], |Continues { client, shared }| {
                let other = &whole[client];
                &other[..other.len().min(shared.as_usize())]
            });
            let own = (0..prompt as u64).map(|position| digest([index as u64, position]));
            let tokens: Vec<u64> = shared.iter().copied().chain(own).take(prompt).collect();
            let len_max = prompt + client.output.as_usize();
            whole.push(alone(tokens.clone(), len_max));
            sequences.push(Sequence { tokens, len_max, kv: None, kept: false });
        }
        Self { sequences, passes: BTreeMap::new() }
    }

    fn sequence(&mut self, request: RequestId) -> &mut Sequence {
        &mut self.sequences[request.0 as usize]
    }
}

/// A prompt and its answer.
fn alone(mut tokens: Vec<u64>, len_max: usize) -> Vec<u64> {
    while tokens.len() < len_max {
        tokens.push(digest(tokens.iter().copied()));
    }
    tokens
}

/// FNV, of words.
fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, word| (digest ^ word).wrapping_mul(0x0100_0000_01b3))
}

impl Answers for Contents {
    fn shared(&self, request: RequestId, _: &Client) -> Option<(RequestId, Tokens)> {
        let prompt = &self.sequences[request.0 as usize].tokens;
        let kept = self.sequences.iter().enumerate().filter(|(_, sequence)| sequence.kept);
        let common = kept.map(|(index, sequence)| {
            let kv = sequence.kv.iter().flatten();
            (kv.zip(prompt).take_while(|(kept, wanted)| kept == wanted).count(), index)
        });
        common.max().map(|(tokens, of)| (RequestId(of as u64), Tokens(tokens as u32)))
    }

    fn placed(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) {
        let kv = match source {
            None => self.sequence(request).kv.take().unwrap_or_default(),
            Some(Source::Forked(of)) => self.sequence(of).kv.clone().unwrap()[..cached.as_usize()].to_vec(),
            Some(Source::TakenOver(of)) => {
                self.sequence(of).kept = false;
                self.sequence(of).kv.take().unwrap()
            }
        };
        assert_eq!(kv.len(), cached.as_usize(), "what is in place for {request}");
        self.sequence(request).kv = Some(kv);
    }

    fn begins(&mut self, pass: PassId, members: &[Member]) {
        let take = |member: &Member| {
            let kv = self.sequence(member.request).kv.take().unwrap();
            assert_eq!(kv.len(), member.rows.start.as_usize(), "the rows of {} follow what it has", member.request);
            (member.request, kv)
        };
        let taken = members.iter().map(take).collect();
        assert!(self.passes.insert(pass, taken).is_none(), "pass {pass} begins once");
    }

    fn complete(&mut self, pass: PassId, members: &[Member]) -> Vec<Generated> {
        let taken = self.passes.remove(&pass).unwrap();
        let mut generated = Vec::new();
        for (member, (request, mut kv)) in members.iter().zip(taken) {
            let sequence = self.sequence(request);
            kv.extend(&sequence.tokens[member.rows.start.as_usize()..member.rows.end.as_usize()]);
            if member.yields == Yields::Token {
                sequence.tokens.push(digest(kv.iter().copied()));
                let last = sequence.tokens.len() >= sequence.len_max;
                generated.push(Generated::one(request, last.then_some(FinishReason::Stop)));
            }
            sequence.kv = Some(kv);
        }
        generated
    }

    fn undone(&mut self, pass: PassId) {
        for (request, kv) in self.passes.remove(&pass).into_iter().flatten() {
            self.sequence(request).kv = Some(kv);
        }
    }

    fn discarded(&mut self, request: RequestId) {
        self.sequence(request).kv = None;
    }

    fn kept(&mut self, request: RequestId) {
        self.sequence(request).kept = true;
    }

    fn dropped(&mut self, request: RequestId) {
        let sequence = self.sequence(request);
        (sequence.kv, sequence.kept) = (None, false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Preempted, batched, cut, spilled, taken over, forked, discarded, undone: an answer is the one alone.
    #[test]
    fn answers_are_those_alone(scenario in scenario()) {
        let world = scenario.run_with(Contents::of(&scenario.clients), Blind).world;
        let alone_all = Contents::of(&scenario.clients).sequences.into_iter().map(|s| alone(s.tokens, s.len_max));
        for (index, (alone, sequence)) in alone_all.zip(&world.answers().sequences).enumerate() {
            prop_assert!(alone.starts_with(&sequence.tokens), "the answer of {} is another one", index);
            if world.ends()[&RequestId(index as u64)] == End::Finished(FinishReason::Stop) {
                prop_assert_eq!(sequence.tokens.len(), alone.len(), "the answer of {} is cut short", index);
            }
        }
        prop_assert!(world.answers().passes.is_empty(), "every pass is completed or undone");
    }
}
