//! Scenarios as text: a machine line, then one line for each client or fault.
//!
//! ```text
//! cpu  policy duet  without preemption,teams  chunk 100  pages 40  disk 10
//! at 0ms  A  proactive  prompt 600  output 2
//! at 3ms  B  reactive   prompt 64   output 3  cancelled 9ms
//! at 9ms  C  reactive   prompt 99   output 1  continues B
//! at 9ms  S  proactive  prompt 99   output 1  scored
//! at 9ms  E  proactive  prompt 99   output 1  encodes
//! at 9ms  D  proactive  prompt 99   output 9  fails-once 3  hangs-from 5  graph-slow 10  drafts 800  masks 2ms
//! at 4ms  lane 0 is lost
//! at 9ms  lane 0 works again
//! at 20ms lane 0 is slow until 30ms
//! ```

mod written;

use crate::answers::{Answers, KnownLengths};
use crate::client::{Client, Continues, Failing, Graphs};
use crate::machines;
use crate::truth::Truth;
use crate::world::VirtualWorld;
use duet_driver::{Observed, Observer, run};
use duet_scheduler::machine::{Capabilities, Joins, Lane};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Chance, HeadRows, Mechanism, Scheduler, SchedulerConfig};
use duet_types::{Bytes, Class, Instant, LaneId, Nanos, Net, Tokens};
use std::fmt;
use std::str::FromStr;

/// Everything that a simulation begins with.
#[derive(Clone)]
pub struct Scenario {
    /// Who decides.
    pub policy: PolicyName,
    /// What it is told.
    pub config: SchedulerConfig,
    /// How it truly is.
    pub truth: Truth,
    /// Who comes.
    pub clients: Vec<Client>,
}

/// Why a text is not a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(String);

impl Scenario {
    /// A scenario without clients on a machine that is as the scheduler thinks.
    #[must_use]
    pub fn new(policy: PolicyName, config: SchedulerConfig) -> Self {
        let truth = Truth::of(&config);
        Self { policy, config, truth, clients: Vec::new() }
    }

    /// Runs it to its end.
    pub fn run<O: Observer>(&self, observer: O) -> Observed<VirtualWorld, O> {
        self.run_with(KnownLengths::of(&self.clients), observer)
    }

    /// Runs it to its end with answers of which more than their length is known.
    pub fn run_with<A: Answers, O: Observer>(&self, answers: A, observer: O) -> Observed<VirtualWorld<A>, O> {
        let world = VirtualWorld::with_answers(self.clients.clone(), &self.config, &self.truth, answers);
        let mut observed = Observed { world, observer };
        run(&mut Scheduler::new(self.config.clone(), self.policy.policy()), &mut observed);
        observed
    }
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut lines = text.lines().map(Words::of).filter(|words| !words.rest.is_empty());
        let mut scenario = machine(lines.next().ok_or(ScenarioError("there is no machine line".to_owned()))?)?;
        for mut words in lines {
            words.expect("at")?;
            let at = words.time()?;
            match words.word()? {
                "lane" => {
                    let lane = LaneId(words.number()? as u8);
                    let faults = &mut scenario.truth.faults;
                    let at = Instant(at.0);
                    match (words.word()?, words.word()?) {
                        ("is", "lost") => faults.lost.push((at, lane)),
                        ("works", "again") => faults.works_again.push((at, lane)),
                        ("is", "slow") => {
                            words.expect("until")?;
                            faults.slow.push((at, Instant(words.time()?.0), lane));
                        }
                        _ => {
                            let text = "a lane `is lost`, `is slow until` a time, or `works again`";
                            return Err(ScenarioError(text.to_owned()));
                        }
                    }
                }
                name => {
                    let client = client(name, Instant(at.0), words, &scenario.clients)?;
                    let is_core = |lane: &Lane| lane.capabilities.joins == Joins::Crew;
                    if client.net == Net::Encoder && !scenario.config.machine.lanes.iter().any(is_core) {
                        return Err(ScenarioError(format!("`{name}` encodes, and the machine has no cores")));
                    }
                    scenario.clients.push(client);
                }
            }
        }
        Ok(scenario)
    }
}

fn machine(mut words: Words<'_>) -> Result<Scenario, ScenarioError> {
    let config = match words.word()? {
        "npu-igpu" => machines::npu_igpu(),
        "npu-igpu-cpu" => machines::npu_igpu_cpu(),
        "half-on-igpu" => machines::half_on_igpu(),
        "discrete-gpu" => machines::discrete_gpu(),
        "cpu" => machines::cpu(),
        "single" => machines::single(),
        "exchanging" => machines::exchanging(Bytes::ZERO),
        "launching" => machines::launching(),
        "mixture" => machines::mixture(),
        "for-head" => machines::for_head(),
        other => return Err(ScenarioError(format!("no machine is called `{other}`"))),
    };
    let mut scenario = Scenario::new(PolicyName::Duet, config);
    while let Some(word) = words.next() {
        read_option(&mut scenario, word, &mut words)?;
    }
    scenario.truth.machine = scenario.config.machine.clone();
    Ok(scenario)
}

/// One option of the machine line.
fn read_option(scenario: &mut Scenario, word: &str, words: &mut Words<'_>) -> Result<(), ScenarioError> {
    let Scenario { policy, config, truth, .. } = scenario;
    match word {
        "policy" => *policy = words.parsed()?,
        "without" => {
            for name in words.word()?.split(',') {
                let mechanism: Mechanism = name.parse().map_err(ScenarioError)?;
                config.mechanisms = config.mechanisms.without(mechanism);
            }
        }
        "chunk" => config.limits.chunk = Tokens(words.number()?),
        "prefill-rows" => config.limits.prefill_rows = Tokens(words.number()?),
        "batch" => config.limits.batch = words.number()? as usize,
        "cap" => config.limits.batch_cap = words.number()? as usize,
        "preempt" => config.limits.preempt = words.time()?,
        "stall" => config.limits.decode_stall = words.time()?,
        "age" => config.limits.age = words.time()?,
        "overtaking" => config.limits.overtaking = words.time()?,
        "share" => config.limits.overdue_share = words.parsed()?,
        "stretch" => config.limits.stretch = words.parsed()?,
        "occupancy" => {
            let share = words.parsed()?;
            config.machine.cap_decode_lane(share);
        }
        "expiry" => config.limits.graph_expiry = words.time()?,
        "graphs" => config.limits.graphs = words.number()? as usize,
        "page" => config.memory.page = Tokens(words.number()?),
        "pages" => config.memory.pages = words.parsed()?,
        "disk" => config.memory.disk_pages = words.parsed()?,
        "window-tail" => config.memory.windows.tail = Tokens(words.number()?),
        "window-lasting" => config.memory.windows.lasting = Bytes(words.parsed()?),
        "window-whole" => config.memory.windows.whole = Bytes(words.parsed()?),
        "page-io" => truth.page_io = words.time()?,
        "spill-fails" => truth.faults.spills.push(words.number()?),
        "graph-load-fails" => truth.faults.graph_loads.push(words.number()?),
        "hang-timeout" => truth.hang_timeout = words.parsed()?,
        "jitter" => truth.jitter = words.parsed()?,
        "seed" => truth.seed = words.parsed()?,
        "compile" => {
            let compile = words.time()?;
            config.machine.lanes.iter_mut().filter(|lane| !lane.capabilities.is_dynamic()).for_each(|lane| {
                lane.capabilities = Capabilities::static_with(compile);
            });
        }
        "contention" => config.machine.contention.memory_beside_memory = words.parsed()?,
        "beside-compute" => config.machine.contention.memory_beside_compute = words.parsed()?,
        other => return Err(ScenarioError(format!("no machine has `{other}`"))),
    }
    Ok(())
}

fn client(name: &str, arrives: Instant, mut words: Words<'_>, others: &[Client]) -> Result<Client, ScenarioError> {
    let class = match words.word()? {
        "reactive" => Class::Reactive,
        "proactive" => Class::Proactive,
        other => return Err(ScenarioError(format!("`{other}` is no class"))),
    };
    let mut client = Client { name: name.to_owned(), arrives, ..Client::new(class, 1, 1) };
    while let Some(word) = words.next() {
        match word {
            "prompt" => client.prompt = Tokens(words.number()?),
            "output" => client.output = Tokens(words.number()?),
            "cancelled" => client.cancelled = Some(Instant(words.time()?.0)),
            "fails-once" => client.failing = Failing::Once(words.number()?),
            "fails-from" => client.failing = Failing::From(words.number()?),
            "hangs-once" => client.hanging = Failing::Once(words.number()?),
            "hangs-from" => client.hanging = Failing::From(words.number()?),
            "scored" => client.head = HeadRows::All,
            "encodes" => client.net = Net::Encoder,
            "drafts" => client.drafts = Some(Chance::new(words.number()? as f32 / 1000.0)),
            "masks" => client.masks = words.time()?,
            "graph-fails" => client.graph = Graphs::Fail,
            "graph-slow" => client.graph = Graphs::Slow(words.number()?),
            "continues" => client.continues = Some(continues(&mut words, others, Tokens(u32::MAX))?),
            "shares" => {
                let shared = Tokens(words.number()?);
                words.expect("of")?;
                client.continues = Some(continues(&mut words, others, shared)?);
            }
            other => return Err(ScenarioError(format!("no client has `{other}`"))),
        }
    }
    if client.net == Net::Encoder && (client.output != Tokens(1) || client.continues.is_some()) {
        return Err(ScenarioError(format!("`{name}` encodes: it has an output of 1 and continues nothing")));
    }
    Ok(client)
}

fn continues(words: &mut Words<'_>, others: &[Client], shared: Tokens) -> Result<Continues, ScenarioError> {
    let name = words.word()?;
    let client = others.iter().position(|other| other.name == name);
    let client = client.ok_or_else(|| ScenarioError(format!("`{name}` is not above")))?;
    Ok(Continues { client, shared })
}

/// The words of a line.
struct Words<'a> {
    rest: std::collections::VecDeque<&'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        Self { rest: line.split_whitespace().collect() }
    }

    fn next(&mut self) -> Option<&'a str> {
        self.rest.pop_front()
    }

    fn word(&mut self) -> Result<&'a str, ScenarioError> {
        self.next().ok_or_else(|| ScenarioError("a line ends too early".to_owned()))
    }

    fn expect(&mut self, word: &str) -> Result<(), ScenarioError> {
        let found = self.word()?;
        if found == word { Ok(()) } else { Err(ScenarioError(format!("`{found}` stands where `{word}` should"))) }
    }

    fn parsed<T: FromStr>(&mut self) -> Result<T, ScenarioError> {
        let word = self.word()?;
        word.parse().map_err(|_| ScenarioError(format!("`{word}` is not understood")))
    }

    fn number(&mut self) -> Result<u32, ScenarioError> {
        self.parsed()
    }

    /// Milliseconds: `3ms`, `0.5ms`.
    fn time(&mut self) -> Result<Nanos, ScenarioError> {
        let word = self.word()?;
        let millis: Option<f64> = word.strip_suffix("ms").and_then(|millis| millis.parse().ok());
        let millis = millis.ok_or_else(|| ScenarioError(format!("`{word}` is no time in ms")))?;
        // To the nearest nanosecond: a time that was written is read back as the same.
        Ok(Nanos((millis * 1e6).round() as u64))
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}
