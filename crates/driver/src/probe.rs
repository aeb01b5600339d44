//! What the machine gives at some moment: the ceilings of one core, and how much of their cores the lanes were given.

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
    /// Since the last probe, the share that each lane was given of the time in which it wanted its cores: below 1, other
    /// threads had them. Absent for lanes that hardly wanted them, and where the operating system does not say.
    #[serde(default)]
    pub given: Vec<Option<f64>>,
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
        self.rates.are_sane() && self.given.iter().flatten().all(|share| (0.0..=1.0).contains(share))
    }
}
