//! What the scheduler is told of the machine, the model and its limits.

use crate::heg::Heg;
use crate::machine::Machine;
use crate::mechanism::Mechanisms;
use crate::memory_limits::MemoryLimits;
use crate::residency::GraphSet;
use duet_types::{Nanos, Net, Tokens};

/// Everything that does not change while the scheduler runs.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SchedulerConfig {
    /// The lanes.
    pub machine: Machine,
    /// The model that answers.
    pub heg: Heg,
    /// The one that makes vectors or scores of texts, if there is one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub encoder: Option<Heg>,
    /// Bounds on what is cut and batched.
    pub limits: Limits,
    /// KV memory.
    pub memory: MemoryLimits,
    /// What is switched on.
    pub mechanisms: Mechanisms,
    /// The graphs of a device that cannot hold all of them, if there is one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub graphs: Option<GraphSet>,
}

impl SchedulerConfig {
    /// The graph of a model.
    #[must_use]
    pub fn graph(&self, net: Net) -> &Heg {
        match net {
            Net::Decoder => &self.heg,
            Net::Encoder => self.encoder.as_ref().unwrap_or(&self.heg),
        }
    }
}

/// Bounds on what is cut and batched.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// Rows of a chunk kernel (`S_chk`).
    pub chunk: Tokens,
    /// Rows that a prefill activation buffer holds.
    pub prefill_rows: Tokens,
    /// Members of a decode batch at most.
    pub batch: usize,
    /// Members of a decode batch with a reactive request at most, unless they are all reactive (`B_cap`).
    pub batch_cap: usize,
    /// Longest that a reactive request may have to wait for background work under way.
    pub preempt: Nanos,
    /// Longest gap between two tokens of a stream that work of its own class or a lower one may cause.
    pub decode_stall: Nanos,
    /// A proactive request that is older is overdue.
    pub age: Nanos,
    /// How long after its arrival a reactive prompt may be overtaken by shorter ones that came later, where the shortest
    /// is read first. From then on it waits for the prompt that is being read and those that came before it only.
    #[cfg_attr(feature = "serde", serde(default = "overtaking_default"))]
    pub overtaking: Nanos,
    /// Share of machine time that overdue work gets at least.
    pub overdue_share: f64,
    /// How much longer background riders may make a reactive pass, as a share of it.
    pub stretch: f64,
    /// A graph that was not used for this long is reclaimed.
    pub graph_expiry: Nanos,
    /// Graphs that may be prepared or ready at once.
    pub graphs: usize,
    /// Rows of a draft that a request of a class may have in a pass at most, reactive and proactive.
    #[cfg_attr(feature = "serde", serde(default = "draft_default"))]
    pub draft: [Tokens; 2],
    /// How many of these are verified.
    #[cfg_attr(feature = "serde", serde(default))]
    pub verify: Verify,
}

/// How many rows of a draft are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Verify {
    /// As many as pay, by the annotations.
    #[default]
    Paying,
    /// All of them: what a device wants whose pass is flat up to the longest draft. (CoordGen §3.4)
    All,
}

/// The length that saturates the papers' NPU (sd.npu §5.1); the annotations allow as much only where a pass is flat.
const DRAFT: [Tokens; 2] = [Tokens(32); 2];

#[cfg(feature = "serde")]
fn draft_default() -> [Tokens; 2] {
    DRAFT
}

/// A few answers of a large model: a burst of short questions still goes before a long one, and a stream of them does
/// not keep it waiting for longer than a person would.
const OVERTAKING: Nanos = Nanos(10_000_000_000);

#[cfg(feature = "serde")]
fn overtaking_default() -> Nanos {
    OVERTAKING
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            chunk: Tokens(256),
            prefill_rows: Tokens(256),
            batch: 32,
            batch_cap: 3,
            preempt: Nanos(10_000_000),
            decode_stall: Nanos(200_000_000),
            age: Nanos(30_000_000_000),
            overtaking: OVERTAKING,
            overdue_share: 0.05,
            stretch: 0.05,
            graph_expiry: Nanos(2_000_000_000),
            graphs: 4,
            draft: DRAFT,
            verify: Verify::Paying,
        }
    }
}
