//! How the baselines are set: each to the best that a sweep found for it.

use super::setting::{Load, Size};
use duet_scheduler::policy::PolicyName;
use duet_sim::Simulation;
use duet_types::Tokens;
use std::collections::BTreeMap;
use std::fmt;

/// What a baseline may be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Rows of a chunk.
    pub(crate) chunk: Tokens,
    /// Members of a batch at most.
    pub(crate) batch: usize,
}

/// What a baseline is tuned for.
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
    /// The same simulation, so set.
    pub(crate) fn apply(self, mut simulation: Simulation) -> Simulation {
        (simulation.config.limits.chunk, simulation.config.limits.batch) = (self.chunk, self.batch);
        simulation
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}, batch {}", self.chunk.0, self.batch)
    }
}

impl Tunings {
    /// A baseline is to be set so.
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
