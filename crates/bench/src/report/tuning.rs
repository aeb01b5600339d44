//! How the baselines and the paper's policy are set: each to the best that a sweep found for it.

use super::setting::{Load, Size};
use duet_scheduler::Limits;
use duet_scheduler::policy::PolicyName;
use duet_sim::Simulation;
use duet_types::{Nanos, Tokens};
use std::collections::BTreeMap;
use std::fmt;

/// What a policy may be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Rows of a chunk.
    pub(crate) chunk: Tokens,
    /// Members of a batch at most.
    pub(crate) batch: usize,
    /// What background work may do beside reactive work; absent: the policy knows of no classes, or is not asked.
    pub(crate) background: Option<Background>,
}

/// What the paper's policy allows background work beside reactive work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Background {
    /// Members of a batch with a reactive request at most (`B_cap`).
    pub(crate) batch_cap: usize,
    /// From what age on it is overdue.
    pub(crate) age: Nanos,
}

/// What a policy is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Regime {
    /// Latency, where persons wait.
    Mixed,
    /// Throughput, where nobody does.
    ProactiveOnly,
}

/// The tunings that were chosen. Whoever has none keeps the profile's settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tunings(BTreeMap<(Size, PolicyName, Regime), Tuning>);

impl Regime {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Mixed, Self::ProactiveOnly];

    /// That of a load.
    pub(crate) fn of(load: Load) -> Self {
        if load.reactive > 0.0 { Self::Mixed } else { Self::ProactiveOnly }
    }
}

impl Tuning {
    /// As a simulation is set.
    pub(crate) fn of(simulation: &Simulation) -> Self {
        let Limits { chunk, batch, batch_cap, age, .. } = simulation.config.limits;
        Self { chunk, batch, background: Some(Background { batch_cap, age }) }
    }

    /// The same simulation, so set.
    pub(crate) fn apply(self, mut simulation: Simulation) -> Simulation {
        let limits = &mut simulation.config.limits;
        (limits.chunk, limits.batch) = (self.chunk, self.batch);
        if let Some(Background { batch_cap, age }) = self.background {
            (limits.batch_cap, limits.age) = (batch_cap, age);
        }
        simulation
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}, batch {}", self.chunk.0, self.batch)?;
        match self.background {
            Some(Background { batch_cap, age }) => write!(f, ", B_cap {batch_cap}, age {} s", age.as_secs_f64()),
            None => Ok(()),
        }
    }
}

impl Tunings {
    /// A policy is to be set so.
    pub(crate) fn choose(&mut self, size: Size, policy: PolicyName, regime: Regime, tuning: Tuning) {
        self.0.insert((size, policy, regime), tuning);
    }

    /// The same simulation with its policy's tuning.
    pub(crate) fn apply(&self, size: Size, regime: Regime, simulation: Simulation) -> Simulation {
        match self.0.get(&(size, tuned_as(simulation.policy), regime)) {
            Some(tuning) => tuning.apply(simulation),
            None => simulation,
        }
    }
}

/// Priority on one device is continuous batching there, and is set as it is.
fn tuned_as(policy: PolicyName) -> PolicyName {
    match policy {
        PolicyName::PriorityOnly => PolicyName::IgpuBatching,
        policy => policy,
    }
}
