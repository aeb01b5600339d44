//! What an executor can do, as plain data: a set of cores, an NPU, a GPU, or a virtual one.
//!
//! Whoever starts an executor fills this in from what the device says of itself and from what was measured on it; the
//! scheduler reads nothing else of it. No layer above asks which vendor a device is of. Cores take everything; an NPU
//! takes token-wise nodes on chunks of fixed size, and graphs made for exactly a prompt's rows; a GPU takes any rows.
//! (Agent.xpu §4.2: device variants of nodes)

use crate::heg::Node;
use duet_types::{Bytes, Nanos, Tokens};

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
    /// Graphs that can be made for exactly a prompt's rows; absent: none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub exact: Option<ExactGraphs>,
    /// Where it keeps activations.
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
    /// Over any context.
    Any,
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
    /// In the host's memory: handing a pass over to cores costs nothing.
    Host,
    /// In memory of its own: what a kernel reads and writes is copied.
    Own {
        /// Bytes a second of such a copy.
        bytes_per_s: f64,
    },
}

impl Capabilities {
    /// Cores: everything, on any rows, in the host's memory.
    pub const CORES: Self = Self {
        joins: Joins::Crew,
        rows: RowsTaken::Any,
        attention: Attention::Any,
        experts: Experts::Taken,
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

    /// Whether it takes any number of rows.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.rows == RowsTaken::Any
    }

    /// Whether it computes a node over contexts of this length without help from another lane.
    #[must_use]
    pub fn computes(&self, node: Node, context: Tokens) -> bool {
        match node {
            Node::Embed | Node::Qkv | Node::Ffn => true,
            Node::Attention => match self.attention {
                Attention::None => false,
                Attention::UpTo(longest) => context <= longest,
                Attention::Any => true,
            },
            Node::Route | Node::Experts => self.experts == Experts::Taken,
        }
    }
}

impl ExactGraphs {
    /// How long graphs for so many rows take to be compiled and loaded.
    #[must_use]
    pub fn ready_after(&self, rows: Tokens) -> Nanos {
        self.compile + Nanos(self.compile_per_row.0.saturating_mul(u64::from(rows.0)))
    }

    /// The part of free memory that they may take, as a divisor: they only make prompts faster.
    pub const SHARE_OF_FREE: u64 = 8;

    /// For how many prompts there may be graphs at once in so much memory, those of a prompt taking `one`; at most `most`.
    #[must_use]
    pub fn held(memory: Bytes, one: Bytes, most: usize) -> usize {
        usize::try_from(memory.0 / one.0.max(1)).map_or(most, |held| held.min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_attends_as_far_as_it_says() {
        let npu = Capabilities { attention: Attention::UpTo(Tokens(4096)), ..Capabilities::STATIC };
        assert!(npu.computes(Node::Attention, Tokens(4096)) && !npu.computes(Node::Attention, Tokens(4097)));
        assert!(!Capabilities::STATIC.computes(Node::Attention, Tokens(1)));
        assert!(Capabilities::STATIC.computes(Node::Ffn, Tokens(1)));
        assert!(!Capabilities::DYNAMIC.computes(Node::Experts, Tokens(1)));
    }

    #[test]
    fn graphs_of_more_rows_take_longer() {
        let graphs =
            ExactGraphs { compile: Nanos(1_000), compile_per_row: Nanos(2), bytes: Bytes(0), covers: Covers::Layers };
        assert_eq!(graphs.ready_after(Tokens(100)), Nanos(1_200));
    }
}
