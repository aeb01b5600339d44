//! Ablation: what each mechanism is worth. The same scenario with everything, then without each mechanism.

use crate::machines;
use crate::metrics::{Metrics, Summary};
use crate::scenario::Scenario;
use crate::workload::{Stream, Workload};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Chance, Mechanism, MemoryLimits, SchedulerConfig};
use duet_types::Nanos;
use std::fmt;

/// A table with one row for everything and one for each mechanism that is missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablation {
    /// What the table is of.
    pub title: String,
    /// With everything.
    pub whole: Summary,
    /// Without one.
    pub without: Vec<(Mechanism, Summary)>,
}

impl Ablation {
    /// Runs a scenario once for each row.
    #[must_use]
    pub fn of(title: &str, scenario: &Scenario) -> Self {
        let summary = |scenario: &Scenario| scenario.run(Metrics::default()).observer.summary();
        let without = Mechanism::ALL.into_iter().map(|mechanism| {
            let mut scenario = scenario.clone();
            scenario.config.mechanisms = scenario.config.mechanisms.without(mechanism);
            (mechanism, summary(&scenario))
        });
        Self { title: title.to_owned(), whole: summary(scenario), without: without.collect() }
    }

    /// Whether the row of a mechanism is another one than that with everything.
    #[must_use]
    pub fn changes(&self, mechanism: Mechanism) -> bool {
        self.without.iter().any(|(without, summary)| *without == mechanism && *summary != self.whole)
    }
}

/// The tables: both kinds of machines, and those where memory is scarce.
#[must_use]
pub fn standard() -> Vec<Ablation> {
    let mut npu = machines::npu_igpu();
    npu.machine.contention.memory_beside_memory = 1.5;
    let scarce = MemoryLimits { pages: 120, disk_pages: 2000, ..machines::cpu().memory };
    let tight = SchedulerConfig { memory: scarce, ..machines::cpu() };
    let table = |title, policy, config| Ablation::of(title, &scenario(policy, config));
    vec![
        table("agent-xpu on an NPU and an iGPU", PolicyName::AgentXpu, npu.clone()),
        table("duet on an NPU and an iGPU", PolicyName::Duet, npu),
        table("duet on two sets of cores", PolicyName::Duet, machines::cpu()),
        table("duet on two sets of cores, memory for 1 200 positions", PolicyName::Duet, tight),
        Ablation::of("duet on two sets of cores, drafts whose every token is right with a chance of 0.75", &drafted()),
        Ablation::of("duet on two sets of cores, experts on disk, and a third of the requests", &on_disk()),
    ]
}

/// The same, with drafts.
fn drafted() -> Scenario {
    let mut scenario = scenario(PolicyName::Duet, machines::cpu());
    scenario.clients.iter_mut().for_each(|client| client.drafts = Some(Chance::new(0.75)));
    scenario
}

/// The same with experts on disk, for which these machines' disk is slow.
fn on_disk() -> Scenario {
    let mut scenario = scenario(PolicyName::Duet, machines::mixture());
    let mut kept = (0..).map(|index| index % 3 == 0);
    scenario.clients.retain(|_| kept.next().unwrap_or_default());
    scenario
}

/// Twenty seconds of a person's and an agent's requests, near the capacity of these machines.
fn scenario(policy: PolicyName, mut config: SchedulerConfig) -> Scenario {
    config.limits.age = Nanos(400_000_000);
    config.limits.graph_expiry = Nanos(10_000_000);
    let reactive = Stream { every: 0.12, prompt: 20..300, output: 2..30 };
    let proactive = Stream { every: 0.12, prompt: 50..500, output: 5..40 };
    let clients = Workload { seed: 1, seconds: 20.0, reactive, proactive }.clients();
    Scenario { clients, ..Scenario::new(policy, config) }
}

impl fmt::Display for Ablation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "{:20} {:>9} {:>7} {:>7} {:>9} {:>7} {:>7} {:>7} {:>6} {:>5}",
            "without", "reactive", "p90", "ttft", "proactive", "tok/s", "preempt", "stall", "spills", "again"
        )?;
        write_row(f, "-", &self.whole)?;
        self.without.iter().try_for_each(|(mechanism, summary)| write_row(f, &mechanism.to_string(), summary))
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, summary: &Summary) -> fmt::Result {
    let [reactive, p90, ttft, proactive, preempt, stall] = [
        summary.reactive_mean,
        summary.reactive_p90,
        summary.ttft_mean,
        summary.proactive_mean,
        summary.preemption_max,
        summary.stall_max,
    ]
    .map(Nanos::as_millis_f64);
    writeln!(
        f,
        "{name:20} {reactive:9.2} {p90:7.2} {ttft:7.2} {proactive:9.1} {:7.1} {preempt:7.2} {stall:7.2} {:6} {:5}",
        summary.tokens_per_s, summary.spills, summary.discards
    )
}
