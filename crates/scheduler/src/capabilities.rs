//! What an executor can do, as plain data: a set of cores, an NPU, a GPU, or a virtual one.
//!
//! Whoever starts an executor fills this in from what the device says of itself and from what was measured on it; the
//! scheduler reads nothing else of it. No layer above asks which vendor a device is of. Cores take everything; an NPU
//! takes token-wise nodes on chunks of fixed size, and graphs made for exactly a prompt's rows; a GPU takes any rows.
//! (Agent.xpu §4.2: device variants of nodes)

use crate::heg::Load;
use crate::layers::HeldLayers;
use duet_types::{Bytes, Nanos, NodeKind, Tokens};

/// What one lane's executor can do.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Capabilities {
    /// How it works in a team.
    pub joins: Joins,
    /// Rows of a token-wise kernel that it takes.
    pub rows: RowsTaken,
    /// Attention that it computes.
    pub attention: Attention,
    /// Whether it computes groups of experts.
    pub experts: Experts,
    /// The layers that it holds, where it has no room for all; absent: it holds all of them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub layers: Option<HeldLayers>,
    /// Graphs that can be made for exactly a prompt's rows; absent: none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub exact: Option<ExactGraphs>,
    /// Where the keys and values lie that it attends to.
    pub memory: MemoryDomain,
    /// What graphs resident on it may take; absent: nothing bounds them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub graph_memory: Option<Bytes>,
    /// Its longest piece that nothing interrupts, a whole chunk through one node or a graph being loaded; zero for cores,
    /// whose kernels are cut as the scheduler asks.
    #[cfg_attr(feature = "serde", serde(default))]
    pub uninterruptible: Nanos,
    /// Watts while it works; absent: not known.
    #[cfg_attr(feature = "serde", serde(default))]
    pub watts: Option<f64>,
}

/// How a lane works on a kernel that it shares with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Joins {
    /// Its threads join the others' crew: cores.
    Crew,
    /// It takes rows of its own: a device.
    Rows,
}

/// Rows of a token-wise kernel that a lane takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RowsTaken {
    /// Any number.
    Any,
    /// Exactly one chunk, and what a graph was made for.
    Chunk,
}

/// Attention that a lane computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Attention {
    /// None: somebody else does.
    None,
    /// Over contexts up to a length.
    UpTo(Tokens),
    /// That of chunks of prompts, where it was measured to be sooner done than the cores'.
    Chunks(AttendedChunks),
    /// Over any context.
    Any,
}

/// Attention of a chunk: rows of one prompt, which see all positions before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AttendedChunks {
    /// Rows at least.
    pub rows_min: Tokens,
    /// Rows at most.
    pub rows_max: Tokens,
    /// Positions up to the end of the chunk, at least.
    pub context_min: Tokens,
    /// The same, at most.
    pub context_max: Tokens,
}

impl AttendedChunks {
    /// Whether it takes so many rows that end at a position.
    #[must_use]
    pub fn takes(&self, rows: Tokens, end: Tokens) -> bool {
        (self.rows_min..=self.rows_max).contains(&rows) && (self.context_min..=self.context_max).contains(&end)
    }
}

/// Whether a lane computes groups of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Experts {
    /// It does, and so it does for models that have them.
    Taken,
    /// It runs dense blocks only.
    NotTaken,
}

/// What graphs for exactly a prompt's rows cost.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExactGraphs {
    /// Compiling and loading the graphs of all layers, however many rows they take.
    pub compile: Nanos,
    /// What each row adds to that.
    #[cfg_attr(feature = "serde", serde(default))]
    pub compile_per_row: Nanos,
    /// Memory that the graphs of one prompt take.
    #[cfg_attr(feature = "serde", serde(default))]
    pub bytes: Bytes,
    /// Which nodes they hold.
    pub covers: Covers,
}

/// Which nodes a prompt's own graphs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Covers {
    /// All of a layer, attention included. (The paper's)
    Layers,
    /// The token-wise ones; a lane with attention does the rest.
    TokenWise,
}

/// Where an executor keeps activations.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MemoryDomain {
    /// In the host's memory, as the cores' do: a request goes from one to the other, and nothing is copied.
    Host,
    /// In memory of its own, as copies of the host's. ([`mirrors`](crate::mirrors))
    Own {
        /// Bytes a second at which what it lacks is copied to it.
        bytes_per_s: f64,
        /// What such copies may take.
        room: Bytes,
    },
}

impl Capabilities {
    /// Cores: everything, on any rows, in the host's memory.
    pub const CORES: Self = Self {
        joins: Joins::Crew,
        rows: RowsTaken::Any,
        attention: Attention::Any,
        experts: Experts::Taken,
        layers: None,
        exact: None,
        memory: MemoryDomain::Host,
        graph_memory: None,
        uninterruptible: Nanos::ZERO,
        watts: None,
    };

    /// A GPU that shares the host's memory: as cores, but it takes rows of its own.
    pub const DYNAMIC: Self = Self { joins: Joins::Rows, experts: Experts::NotTaken, ..Self::CORES };

    /// An NPU that takes token-wise nodes in chunks, and no graphs but these.
    pub const STATIC: Self = Self { rows: RowsTaken::Chunk, attention: Attention::None, ..Self::DYNAMIC };

    /// The NPU of the paper: chunks, and whole prompts on graphs that take so long to make. (Agent.xpu §4.3 ⑤)
    #[must_use]
    pub const fn static_with(compile: Nanos) -> Self {
        let exact = ExactGraphs { compile, compile_per_row: Nanos::ZERO, bytes: Bytes(0), covers: Covers::Layers };
        Self { exact: Some(exact), ..Self::STATIC }
    }

    /// Whether it can be reckoned with: rates are rates, and nothing takes for ever.
    pub(crate) fn is_sane(&self) -> bool {
        let copies = match self.memory {
            MemoryDomain::Host => true,
            MemoryDomain::Own { bytes_per_s, .. } => bytes_per_s.is_finite() && bytes_per_s > 0.0,
        };
        let made = self.exact.is_none_or(|exact| exact.compile <= LONGEST && exact.compile_per_row <= LONGEST);
        self.layers.is_none_or(HeldLayers::is_sane) && copies && made && self.uninterruptible <= LONGEST
    }

    /// Whether it takes any number of rows.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.rows == RowsTaken::Any
    }

    /// Whether it computes a node of such a pass without help from another lane.
    #[must_use]
    pub fn computes(&self, node: NodeKind, load: &Load) -> bool {
        match node {
            NodeKind::Embed | NodeKind::Qkv | NodeKind::Ffn => true,
            NodeKind::Attention => match self.attention {
                Attention::None => false,
                Attention::UpTo(longest) => Tokens(load.positions.max(0.0) as u32) <= longest,
                Attention::Chunks(chunks) => {
                    load.chunk_end().is_some_and(|end| chunks.takes(Tokens(load.rows as u32), end))
                }
                Attention::Any => true,
            },
            NodeKind::Route | NodeKind::Experts => self.experts == Experts::Taken,
        }
    }
}

impl ExactGraphs {
    /// How long graphs for so many rows take to be compiled and loaded.
    #[must_use]
    pub fn ready_after(&self, rows: Tokens) -> Nanos {
        Nanos(self.compile.0.saturating_add(self.compile_per_row.0.saturating_mul(u64::from(rows.0))))
    }

    /// The part of free memory that they may take, as a divisor: they only make prompts faster.
    pub const SHARE_OF_FREE: u64 = 8;

    /// For how many prompts there may be graphs at once in so much memory, those of a prompt taking `one`; at most `most`.
    #[must_use]
    pub fn held(memory: Bytes, one: Bytes, most: usize) -> usize {
        usize::try_from(memory.0 / one.0.max(1)).map_or(most, |held| held.min(most))
    }
}

/// A day: whatever takes longer is no measurement.
const LONGEST: Nanos = Nanos(86_400_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Yields;

    #[test]
    fn a_lane_attends_as_far_as_it_says() {
        let far = |end| Load::default().with_rows(Tokens(end - 100)..Tokens(end), Yields::Context);
        let npu = Capabilities { attention: Attention::UpTo(Tokens(4096)), ..Capabilities::STATIC };
        assert!(npu.computes(NodeKind::Attention, &far(4096)) && !npu.computes(NodeKind::Attention, &far(4097)));
        assert!(!Capabilities::STATIC.computes(NodeKind::Attention, &far(101)));
        assert!(Capabilities::STATIC.computes(NodeKind::Ffn, &far(101)));
        assert!(!Capabilities::DYNAMIC.computes(NodeKind::Experts, &far(101)));
    }

    #[test]
    fn chunks_are_rows_of_one_prompt() {
        let chunks = AttendedChunks {
            rows_min: Tokens(64),
            rows_max: Tokens(256),
            context_min: Tokens(512),
            context_max: Tokens(4096),
        };
        let npu = Capabilities { attention: Attention::Chunks(chunks), ..Capabilities::STATIC };
        let computes = |load: &Load| npu.computes(NodeKind::Attention, load);
        let rows = |start, end| Load::default().with_rows(Tokens(start)..Tokens(end), Yields::Token);
        assert!(computes(&rows(512, 768)) && computes(&rows(256, 512)) && computes(&rows(3840, 4096)));
        for not in [rows(0, 256), rows(512, 575), rows(512, 769), rows(3900, 4100), Load::default()] {
            assert!(!computes(&not), "{not:?}");
        }
        assert!(!computes(&rows(500, 600).with_rows(Tokens(500)..Tokens(600), Yields::Token)));
        let draft = (0..64).fold(rows(900, 901), |load, row| load.with_draft_row(Tokens(901 + row)));
        assert!(!computes(&draft));
    }

    #[test]
    fn what_no_device_is_like_is_found_out() {
        assert!(Capabilities::static_with(Nanos(5)).is_sane() && Capabilities::CORES.is_sane());
        assert!(!Capabilities::static_with(Nanos(u64::MAX)).is_sane());
        for bytes_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let device =
                Capabilities { memory: MemoryDomain::Own { bytes_per_s, room: Bytes(0) }, ..Capabilities::DYNAMIC };
            assert!(!device.is_sane(), "{bytes_per_s}");
        }
    }

    #[test]
    fn graphs_of_more_rows_take_longer() {
        let graphs =
            ExactGraphs { compile: Nanos(1_000), compile_per_row: Nanos(2), bytes: Bytes(0), covers: Covers::Layers };
        assert_eq!(graphs.ready_after(Tokens(100)), Nanos(1_200));
    }
}
