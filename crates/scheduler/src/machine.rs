//! The machine as the scheduler sees it: lanes, what each can do, and what lanes do to each other.
//!
//! Every figure is a measurement of `duet profile` or a published number of a SoC profile; none is chosen here.

pub use crate::few_rows::FewRows;

use duet_types::{LaneId, LaneSet, Nanos};

/// The lanes there are.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Machine {
    /// Lane `i` has the id `i`.
    pub lanes: Vec<Lane>,
    /// All lanes as one team, on machines whose lanes can run one kernel together.
    pub team: Option<Anchors>,
    /// What kernels that run side by side do to each other.
    pub contention: Contention,
}

/// One serial execution queue.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lane {
    /// What it is called in timelines: `npu`, `igpu`, `cpu0`.
    pub name: String,
    /// The shapes it can run.
    pub shapes: Shapes,
    /// How fast it is.
    pub anchors: Anchors,
}

/// The shapes a lane can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Shapes {
    /// Any number of rows.
    Dynamic,
    /// Token-wise nodes on exactly one chunk of rows, and what a graph was prepared for.
    Static {
        /// How long compiling and loading a graph takes; absent: none can be prepared.
        compile: Option<Nanos>,
    },
}

/// The two anchors of a roofline, and what a launch costs. (Agent.xpu appendix A)
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Anchors {
    /// `P_eff`: multiply-accumulates a second in the most compute-bound case.
    pub macs_per_s: f64,
    /// The same for attention, which is not a matrix product of weights.
    pub attention_macs_per_s: f64,
    /// `B_eff`: bytes a second in the most memory-bound case.
    pub bytes_per_s: f64,
    /// From launch to the first instruction and from the last one to the completion.
    pub launch: Nanos,
    /// How much of the shorter of computing and reading is not hidden by the longer: 0 is the paper's roofline, 1 a
    /// machine that does one after the other. Measured between the anchors.
    pub exposed: f64,
    /// What rows take beside products.
    #[cfg_attr(feature = "serde", serde(default))]
    pub per_row: PerRow,
    /// The steps between the anchors.
    #[cfg_attr(feature = "serde", serde(default))]
    pub few_rows: FewRows,
}

/// Seconds that one row takes in a node beside the products that the roofline knows: norms, rope and the cache in the
/// first, the masked parts of tiles in attention.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PerRow {
    /// In the projection to queries, keys and values.
    pub qkv: f64,
    /// In attention.
    pub attention: f64,
}

/// What kernels that run side by side do to each other: factors on their time, at least 1. (Agent.xpu Fig. 4)
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Contention {
    /// A memory-bound kernel beside another one.
    pub memory_beside_memory: f64,
    /// A memory-bound kernel beside a compute-bound one.
    pub memory_beside_compute: f64,
    /// A compute-bound kernel beside a memory-bound one.
    pub compute_beside_memory: f64,
    /// A compute-bound kernel beside another one.
    pub compute_beside_compute: f64,
}

impl Machine {
    /// All lanes.
    #[must_use]
    pub fn all(&self) -> LaneSet {
        LaneSet::first(self.lanes.len() as u8)
    }

    /// One lane.
    ///
    /// # Panics
    /// If there is no such lane.
    #[must_use]
    pub fn lane(&self, lane: LaneId) -> &Lane {
        &self.lanes[usize::from(lane.0)]
    }

    /// The lane of the NPU role: where prefill goes.
    #[must_use]
    pub fn prefill_lane(&self) -> LaneId {
        let fixed = self.lanes.iter().position(|lane| lane.shapes != Shapes::Dynamic);
        LaneId(fixed.unwrap_or(0) as u8)
    }

    /// The lane of the iGPU role: where decode goes. The only lane has both roles.
    #[must_use]
    pub fn decode_lane(&self) -> LaneId {
        let dynamic = self.lanes.iter().rposition(|lane| lane.shapes == Shapes::Dynamic);
        LaneId(dynamic.unwrap_or(0) as u8)
    }

    /// Whether the lane needs a graph for shapes other than the chunk.
    #[must_use]
    pub fn is_static(&self, lane: LaneId) -> bool {
        self.lane(lane).shapes != Shapes::Dynamic
    }

    /// How fast a team is: one lane, or all of them together.
    ///
    /// # Panics
    /// If these lanes cannot form a team.
    #[must_use]
    pub fn anchors(&self, lanes: LaneSet) -> &Anchors {
        match lanes.leader() {
            Some(lane) if lanes.len() == 1 => &self.lane(lane).anchors,
            _ => {
                assert_eq!(lanes, self.all(), "a team is all lanes");
                self.team.as_ref().expect("these lanes form no team")
            }
        }
    }
}

impl PerRow {
    /// The paper's roofline, which knows of nothing else.
    pub const NONE: Self = Self { qkv: 0.0, attention: 0.0 };
}

impl Contention {
    /// Kernels that do not disturb each other.
    pub const NONE: Self = Self {
        memory_beside_memory: 1.0,
        memory_beside_compute: 1.0,
        compute_beside_memory: 1.0,
        compute_beside_compute: 1.0,
    };
}
