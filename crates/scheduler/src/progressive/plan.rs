//! A plan: what is loaded when, while a prompt is read.
//!
//! Loads come one after the other in the plan's order. Each begins when the computation has come to its place and the
//! loads before it are done. **Invariant:** the places of loads never go back; only planners of this module make plans.

use super::blocks::Role;
use super::problem::Resident;
use super::prompt::{Place, Prompt};

/// How a graph takes the place of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Exchange {
    /// The other one is released first: there is room for one graph of each block, and the block waits for its load.
    /// (CoordGen §3.2)
    InPlace,
    /// The other one is used until the load is done: there is room for one graph more. (Ours)
    Beside,
}

/// A graph to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Of which block.
    pub block: usize,
    /// Which graph.
    pub role: Role,
    /// When the computation has come here. Where graphs are exchanged in place, the block computes on the new one from
    /// here on.
    pub at: Place,
}

/// What is loaded when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(super) prompt: Prompt,
    pub(super) initial: Vec<Resident>,
    pub(super) loads: Vec<Load>,
    pub(super) exchange: Exchange,
}

impl Plan {
    /// What is read meanwhile.
    #[must_use]
    pub fn prompt(&self) -> Prompt {
        self.prompt
    }

    /// What is resident at the beginning, block by block.
    #[must_use]
    pub fn initial(&self) -> &[Resident] {
        &self.initial
    }

    /// The loads, in their order.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// How graphs take each other's place.
    #[must_use]
    pub fn exchange(&self) -> Exchange {
        self.exchange
    }
}
