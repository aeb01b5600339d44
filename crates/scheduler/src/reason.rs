//! Why something was chosen. Every launch and timer carries one, and timelines show it.

use std::fmt;

/// Why a kernel was launched, or a timer set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reason {
    /// It is the oldest, and its turn has come.
    FirstCome,
    /// Its pass is under way, and nothing goes before it.
    GoesOn,
    /// A person waits for it.
    ReactiveFirst,
    /// A person waits, and background rows ride along because they are nearly free.
    Piggyback {
        /// How many members ride.
        riders: u32,
    },
    /// A person waits for the decode batch, which background members fill up to the cap. (Algorithm 2)
    FillsBatch {
        /// How many members fill it.
        riders: u32,
    },
    /// Nobody waits for anything else.
    Background,
    /// Background decode rides in a background prefill pass, which reads the weights anyway.
    SharesWeights {
        /// How many members ride.
        riders: u32,
    },
    /// It was preempted, and goes on where it stopped.
    Resumes,
    /// It is overdue, and gets the share of the machine that it is owed.
    Owed,
    /// It is overdue, and takes the dynamic lane from reactive prefill. (first privilege)
    OverduePrefill,
    /// Decode is idle: the lanes share the node so that both end together. (Algorithm 1, scenario 1)
    Balanced {
        /// Chunks for the static lane.
        chunks: u32,
    },
    /// Decode is busy: all chunks go to the static lane. (Algorithm 1, scenario 2)
    KeepsOffDecode,
    /// The remainder, put off so that decode may end first. (Algorithm 1, scenario 2)
    DeferredRemainder,
    /// The remainder of a chunked node, attention, or a prompt without chunks: shapes that the static lane has no graph for.
    Dynamic,
    /// A chunk of a token-wise node, on the lane that runs nothing else.
    Chunk,
    /// The graph for this prompt was ready before its prefill began. (warm-up)
    Warm,
    /// Decode takes what prefill leaves of the dynamic lane. (prefill-first)
    FillsGap,
    /// One stage alone has work: both lanes join.
    Joined,
    /// It is the turn of the next one. (time-sharing)
    Turn,
    /// Its lane is of the other stage, and predicted cost allows both side by side.
    SideBySide,
    /// What waits for memory needs this to end.
    FreesMemory,
    /// A memory-bound kernel waits until decode of a higher class is done.
    Contention,
    /// A request becomes overdue then.
    Ageing,
    /// A lane rests, so that its occupancy stays below the cap.
    Occupancy,
    /// An unused graph expires then.
    Expiry,
    /// A lost lane is tried again then.
    Probe,
    /// If a person's pass still waits for the disk then, background work has the lanes.
    DiskLate,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstCome => f.write_str("first come"),
            Self::GoesOn => f.write_str("goes on"),
            Self::ReactiveFirst => f.write_str("reactive first"),
            Self::Piggyback { riders } => write!(f, "reactive first, {riders} ride nearly free"),
            Self::FillsBatch { riders } => write!(f, "reactive first, {riders} fill the batch"),
            Self::Background => f.write_str("background"),
            Self::SharesWeights { riders } => write!(f, "background, {riders} share its weights"),
            Self::Resumes => f.write_str("resumes"),
            Self::Owed => f.write_str("overdue: its share"),
            Self::OverduePrefill => f.write_str("overdue: takes the dynamic lane"),
            Self::Balanced { chunks } => write!(f, "balanced, {chunks} chunks on the static lane"),
            Self::KeepsOffDecode => f.write_str("keeps off decode"),
            Self::DeferredRemainder => f.write_str("deferred remainder"),
            Self::Dynamic => f.write_str("dynamic shape"),
            Self::Chunk => f.write_str("chunk"),
            Self::Warm => f.write_str("graph ready"),
            Self::FillsGap => f.write_str("fills the gap"),
            Self::Joined => f.write_str("alone: lanes join"),
            Self::Turn => f.write_str("its turn"),
            Self::SideBySide => f.write_str("side by side"),
            Self::FreesMemory => f.write_str("its pages are wanted"),
            Self::Contention => f.write_str("contention"),
            Self::Ageing => f.write_str("ageing"),
            Self::Occupancy => f.write_str("occupancy cap"),
            Self::Expiry => f.write_str("expiry"),
            Self::Probe => f.write_str("probe of a lost lane"),
            Self::DiskLate => f.write_str("the disk is late"),
        }
    }
}
