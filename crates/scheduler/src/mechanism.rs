//! The mechanisms by name, so that each can be switched off to see what it is worth.

use std::fmt;
use std::str::FromStr;

/// What a policy may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mechanism {
    /// Background passes are cut in spans, and a reactive one goes in between. Off: they run to their end. (§4.4)
    Preemption,
    /// A reactive prefill is shared by both lanes while decode is idle. (§4.3 ④)
    Elastic,
    /// The remainder of a chunked node is put off while decode is busy. (§4.3 ④)
    RemainderDeferral,
    /// Prefill kernels go first on the dynamic lane. Off: decode does. (§4.3 ③)
    PrefillFirst,
    /// Graphs are compiled while their requests wait. (§4.3 ⑤)
    WarmUp,
    /// Graphs that are not used are reclaimed. (§4.3 ⑤)
    GraphReclaim,
    /// Memory-bound prefill waits for decode of a higher class, and the reverse. (§4.3 ⑤)
    ContentionDeferral,
    /// Background decode rides with reactive decode. (§4.5 ①②)
    Piggyback,
    /// A batch with a reactive request is bounded. (§4.5 ②)
    BatchCap,
    /// Overdue background work is promoted. (§4.5 ③)
    Ageing,
    /// Lanes join in a team when one stage alone has work.
    Teams,
    /// Cold KV goes to disk under memory pressure. Off: it is given up. (§4.1)
    Spill,
    /// Drafts are verified, as many rows as pay. (CoordGen §3.4)
    Speculation,
    /// A pass that waits for a disk gives its lanes back meanwhile. Off: it keeps them.
    GiveBack,
}

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Mechanisms(u32);

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Preemption,
        Self::Elastic,
        Self::RemainderDeferral,
        Self::PrefillFirst,
        Self::WarmUp,
        Self::GraphReclaim,
        Self::ContentionDeferral,
        Self::Piggyback,
        Self::BatchCap,
        Self::Ageing,
        Self::Teams,
        Self::Spill,
        Self::Speculation,
        Self::GiveBack,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Preemption => "preemption",
            Self::Elastic => "elastic",
            Self::RemainderDeferral => "remainder-deferral",
            Self::PrefillFirst => "prefill-first",
            Self::WarmUp => "warm-up",
            Self::GraphReclaim => "graph-reclaim",
            Self::ContentionDeferral => "contention-deferral",
            Self::Piggyback => "piggyback",
            Self::BatchCap => "batch-cap",
            Self::Ageing => "ageing",
            Self::Teams => "teams",
            Self::Spill => "spill",
            Self::Speculation => "speculation",
            Self::GiveBack => "give-back",
        }
    }
}

impl Mechanisms {
    /// Everything on.
    pub const ALL: Self = Self(u32::MAX);

    /// These, but for one.
    #[must_use]
    pub fn without(self, mechanism: Mechanism) -> Self {
        Self(self.0 & !(1 << mechanism as u32))
    }

    /// Whether it is on.
    #[must_use]
    pub fn has(self, mechanism: Mechanism) -> bool {
        self.0 & (1 << mechanism as u32) != 0
    }
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|mechanism| mechanism.name() == name);
        known.ok_or_else(|| format!("no mechanism is called `{name}`"))
    }
}
