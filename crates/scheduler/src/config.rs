//! What the scheduler is told of the machine, the model and its limits.

use crate::heg::Heg;
use crate::machine::Machine;
use crate::mechanism::Mechanisms;
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

/// KV memory, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryLimits {
    /// Positions in a page.
    pub page: Tokens,
    /// Pages there are.
    pub pages: usize,
    /// Pages that may be on disk; 0 if nothing can be spilled.
    pub disk_pages: usize,
    /// What is kept of a sequence beside its pages.
    #[cfg_attr(feature = "serde", serde(default))]
    pub states: StatePages,
}

/// What a sequence of a model with recurrent layers takes beside the pages of its positions: a state at its end, and one at
/// each border so far from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StatePages {
    /// Pages that a state counts as.
    pub pages: usize,
    /// Positions from one that is kept to the next.
    pub every: Tokens,
}

impl StatePages {
    /// Of models without.
    pub const NONE: Self = Self { pages: 0, every: Tokens(u32::MAX) };
}

impl Default for StatePages {
    fn default() -> Self {
        Self::NONE
    }
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

impl MemoryLimits {
    /// Memory that never runs out.
    pub const UNBOUNDED: Self =
        Self { page: Tokens(64), pages: usize::MAX / 4, disk_pages: 0, states: StatePages::NONE };

    /// Pages that a sequence of so many positions takes.
    #[must_use]
    pub fn pages_of(&self, positions: Tokens) -> usize {
        let pages = positions.as_usize().div_ceil(self.page.as_usize());
        if positions == Tokens::ZERO {
            return pages;
        }
        pages + self.states.pages * (1 + positions.as_usize() / self.states.every.as_usize())
    }

    /// The most positions that a sequence of so many pages may have.
    #[must_use]
    pub fn positions_of(&self, pages: usize) -> Tokens {
        let StatePages { pages: state, every } = self.states;
        let (page, every) = (self.page.as_usize(), every.as_usize());
        let most = |positions: usize| Tokens(u32::try_from(positions).unwrap_or(u32::MAX));
        if state == 0 {
            return most(pages.saturating_mul(page));
        }
        let left = pages.saturating_sub(state);
        let whole = every.div_ceil(page) + state;
        // The last position before a border takes no state more.
        let rest = (left % whole).saturating_mul(page).min(every - 1);
        most((left / whole).saturating_mul(every).saturating_add(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_count_as_pages() {
        let states = StatePages { pages: 3, every: Tokens(128) };
        let limits = MemoryLimits { page: Tokens(64), pages: 100, disk_pages: 0, states };
        let pages = [0, 1, 64, 65, 127, 128, 129, 256].map(|positions| limits.pages_of(Tokens(positions)));
        assert_eq!(pages, [0, 4, 4, 5, 5, 8, 9, 13]);
        for limits in [limits, MemoryLimits { states: StatePages::NONE, ..limits }] {
            for pages in 1..60 {
                let most = limits.positions_of(pages);
                assert!(most == Tokens::ZERO || limits.pages_of(most) <= pages, "{pages} pages hold {most}");
                assert!(limits.pages_of(most + Tokens(1)) > pages, "{pages} pages hold more than {most}");
            }
        }
    }
}
