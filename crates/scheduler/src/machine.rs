//! The machine as the scheduler sees it: lanes, what each can do, and what lanes do to each other.
//!
//! Every figure is a measurement of `duet profile` or a published number of a SoC profile; none is chosen here.

pub use crate::capabilities::{
    AttendedChunks, Attention, Capabilities, Covers, ExactGraphs, Experts, Joins, MemoryDomain, RowsTaken,
};
pub use crate::few_rows::FewRows;

use crate::heg::Load;
use duet_types::{LaneId, LaneSet, Nanos, NodeKind, NodeOrder};
use std::ops::Range;

/// The lanes there are.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Machine {
    /// Lane `i` has the id `i`.
    pub lanes: Vec<Lane>,
    /// Lanes that can run one kernel together, as they were measured together. Lanes that share no memory form none.
    pub teams: Vec<Team>,
    /// What kernels that run side by side do to each other, where nothing was measured of their lanes.
    pub contention: Contention,
    /// What was measured of two lanes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub pairs: Vec<LanePair>,
}

/// One serial execution queue.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lane {
    /// What it is called in timelines: `npu`, `igpu`, `cpu0`.
    pub name: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// How fast it is.
    pub anchors: Anchors,
    /// Share of its time that may be used at most, in slices of [`Limits::preempt`](crate::Limits::preempt); the rest is
    /// the display's, or another program's.
    #[cfg_attr(feature = "serde", serde(default = "whole"))]
    pub occupancy: f64,
}

/// Lanes that run one kernel together.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Team {
    /// Two or more.
    pub lanes: LaneSet,
    /// How fast they are together.
    pub anchors: Anchors,
}

/// What kernels on two lanes do to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LanePair {
    /// The two, whose kernels ran side by side.
    pub lanes: LaneSet,
    /// What came of it.
    pub contention: Contention,
}

#[cfg(feature = "serde")]
fn whole() -> f64 {
    1.0
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
    /// In attention, and in what recurrent layers have in its place.
    pub attention: f64,
}

/// What decides how long a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Reading and writing.
    Memory,
    /// Arithmetic.
    Compute,
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

impl Lane {
    /// A lane that may be used all the time.
    #[must_use]
    pub fn new(name: impl Into<String>, capabilities: Capabilities, anchors: Anchors) -> Self {
        Self { name: name.into(), capabilities, anchors, occupancy: 1.0 }
    }
}

impl Machine {
    /// These lanes, of which nothing is known together.
    #[must_use]
    pub fn of(lanes: Vec<Lane>) -> Self {
        Self { lanes, teams: Vec::new(), contention: Contention::NONE, pairs: Vec::new() }
    }

    /// The same, with all of them a team.
    #[must_use]
    pub fn with_team(self, anchors: Anchors) -> Self {
        let lanes = self.all();
        Self { teams: vec![Team { lanes, anchors }], ..self }
    }

    /// Whether it can be reckoned with, speeds aside. A file may hold anything.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        let all = self.all();
        let lanes =
            self.lanes.iter().all(|lane| (0.001..=1.0).contains(&lane.occupancy) && lane.capabilities.is_sane());
        let sets = self.teams.iter().map(|team| team.lanes).chain(self.pairs.iter().map(|pair| pair.lanes));
        let mut contentions = self.pairs.iter().map(|pair| &pair.contention).chain([&self.contention]);
        lanes
            && sets.into_iter().all(|set| set.len() > 1 && all.contains_all(set))
            && contentions.all(Contention::is_sane)
    }

    /// Whether a lane may not be used all the time.
    #[must_use]
    pub fn is_capped(&self) -> bool {
        self.lanes.iter().any(|lane| lane.occupancy < 1.0)
    }

    /// Caps how much of the lane of the iGPU role may be used, in the display's favour.
    pub fn cap_decode_lane(&mut self, share: f64) {
        let lane = usize::from(self.decode_lane().0);
        self.lanes[lane].occupancy = share;
    }

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
        let fixed = self.lanes.iter().position(|lane| !lane.capabilities.is_dynamic());
        LaneId(fixed.unwrap_or(0) as u8)
    }

    /// The lane of the iGPU role: where decode goes. The only lane has both roles.
    #[must_use]
    pub fn decode_lane(&self) -> LaneId {
        let dynamic = self.lanes.iter().rposition(|lane| lane.capabilities.is_dynamic());
        LaneId(dynamic.unwrap_or(0) as u8)
    }

    /// Whether the lane needs a graph for shapes other than the chunk.
    #[must_use]
    pub fn is_static(&self, lane: LaneId) -> bool {
        !self.lane(lane).capabilities.is_dynamic()
    }

    /// Lanes that take any rows.
    #[must_use]
    pub fn dynamic(&self) -> LaneSet {
        self.all().iter().filter(|&lane| !self.is_static(lane)).collect()
    }

    /// Whether some lanes can run one kernel: one of them can, and several were measured together.
    #[must_use]
    pub fn is_team(&self, lanes: LaneSet) -> bool {
        lanes.len() == 1 && self.all().contains_all(lanes) || self.teams.iter().any(|team| team.lanes == lanes)
    }

    /// All sets of these lanes that can run one kernel, whose cores stay together: a set has all of the cores' lanes
    /// among these, or none. The smaller sets come first.
    #[must_use]
    pub fn teams_among(&self, lanes: LaneSet) -> Vec<LaneSet> {
        let crew: LaneSet = lanes.iter().filter(|&lane| self.lane(lane).capabilities.joins == Joins::Crew).collect();
        let singles = lanes.iter().map(|lane| LaneSet::from_iter([lane]));
        let sets = singles.chain(self.teams.iter().map(|team| team.lanes)).filter(|&set| lanes.contains_all(set));
        let mut sets: Vec<LaneSet> = sets.filter(|&set| set.contains_all(crew) || set.without(crew) == set).collect();
        sets.sort_by_key(|set| set.len());
        sets
    }

    /// Whether these lanes compute a kind of node of such a pass without help from others.
    #[must_use]
    pub fn computes(&self, lanes: LaneSet, node: NodeKind, load: &Load) -> bool {
        lanes.iter().any(|lane| self.lane(lane).capabilities.computes(node, load))
    }

    /// Whether every one of these lanes holds the layers of some nodes: cores hold all.
    #[must_use]
    pub fn hold(&self, lanes: LaneSet, order: NodeOrder, nodes: &Range<usize>) -> bool {
        let mut held = lanes.iter().filter_map(|lane| self.lane(lane).capabilities.layers);
        held.all(|layers| layers.hold(order, nodes))
    }

    /// Where the next layers behind a node begin that others hold than its own: a kernel goes no further.
    #[must_use]
    pub fn border_behind(&self, node: usize, order: NodeOrder) -> usize {
        let held = self.lanes.iter().filter_map(|lane| lane.capabilities.layers);
        // What begins with the first layer begins with the embeddings.
        let borders = held.flat_map(|layers| layers.borders(order)).filter(|&border| border > node.max(1));
        borders.min().unwrap_or_else(|| order.count())
    }

    /// The executors of some lanes, each by its first lane: the cores are one, however many lanes they are.
    #[must_use]
    pub fn executors(&self, lanes: LaneSet) -> LaneSet {
        let cores = |lane: &LaneId| self.lane(*lane).capabilities.joins == Joins::Crew;
        let first = self.all().iter().find(cores);
        lanes.iter().map(|lane| if cores(&lane) { first.unwrap_or(lane) } else { lane }).collect()
    }

    /// What a kernel on `lanes` suffers beside one on `others`.
    #[must_use]
    pub fn contention_of(&self, lanes: LaneSet, others: LaneSet) -> &Contention {
        self.measured_contention(lanes, others).unwrap_or(&self.contention)
    }

    /// The same, if it was measured of a lane of either.
    #[must_use]
    pub fn measured_contention(&self, lanes: LaneSet, others: LaneSet) -> Option<&Contention> {
        let both = lanes.union(others);
        let is_between = |set: LaneSet| both.contains_all(set) && !lanes.contains_all(set) && !others.contains_all(set);
        self.pairs.iter().find(|pair| is_between(pair.lanes)).map(|pair| &pair.contention)
    }

    /// How fast a team is: one lane, or some that were measured together.
    ///
    /// # Panics
    /// If these lanes form no team.
    #[must_use]
    pub fn anchors(&self, lanes: LaneSet) -> &Anchors {
        match lanes.leader() {
            Some(lane) if lanes.len() == 1 => &self.lane(lane).anchors,
            _ => {
                let team = self.teams.iter().find(|team| team.lanes == lanes);
                &team.unwrap_or_else(|| panic!("lanes {lanes} form no team")).anchors
            }
        }
    }
}

impl Contention {
    /// More than kernels do to each other on any machine.
    pub const MOST: f64 = 1e3;

    /// Factors slow down, and come to an end.
    fn is_sane(&self) -> bool {
        let bounds = [Bound::Memory, Bound::Compute];
        bounds.iter().all(|&of| bounds.iter().all(|&beside| (1.0..=Self::MOST).contains(&self.factor(of, beside))))
    }

    /// The factor on the time of a kernel that is bound by `of` beside one that is bound by `beside`.
    #[must_use]
    pub fn factor(&self, of: Bound, beside: Bound) -> f64 {
        match (of, beside) {
            (Bound::Memory, Bound::Memory) => self.memory_beside_memory,
            (Bound::Memory, Bound::Compute) => self.memory_beside_compute,
            (Bound::Compute, Bound::Memory) => self.compute_beside_memory,
            (Bound::Compute, Bound::Compute) => self.compute_beside_compute,
        }
    }
}

impl PerRow {
    /// Seconds that no row takes beside its products.
    pub const MOST: f64 = 1.0;

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
