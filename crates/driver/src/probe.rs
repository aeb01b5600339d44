//! What the machine gives at some moment: the ceilings of one core, and how much of their cores the lanes were given.

use duet_types::Nanos;
use serde::{Deserialize, Serialize};

/// What one core does a second, as a short probe finds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Integer multiply-accumulates from registers.
    pub macs_per_s: f64,
    /// Bytes read from beyond the core's own caches.
    pub bytes_per_s: f64,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// How fast a core is.
    pub rates: Rates,
    /// Since the last probe, by lane; empty where the operating system does not say.
    #[serde(default)]
    pub lanes: Vec<LaneTime>,
}

/// How much a lane wanted its cores, and was kept waiting for them by other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTime {
    /// It ran, or could have run.
    pub wanted: Nanos,
    /// One of its threads could have run, and did not; no longer than it wanted.
    pub waited: Nanos,
}

impl Rates {
    /// Whether speeds may be divided by them: a file may hold anything.
    #[must_use]
    pub fn are_sane(&self) -> bool {
        [self.macs_per_s, self.bytes_per_s].iter().all(|rate| rate.is_finite() && *rate > 0.0)
    }
}

impl Probe {
    /// Whether it may be used as it is.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        self.rates.are_sane() && self.lanes.iter().all(|lane| lane.waited <= lane.wanted && lane.wanted <= WANTED_MAX)
    }
}

/// No two probes are further apart: a month. Sums of these do not overflow.
const WANTED_MAX: Nanos = Nanos(30 * 24 * 3_600_000_000_000);
