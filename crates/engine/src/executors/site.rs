//! Where a kernel runs, and how far it came.

use duet_kernels::crew::Crew;
use duet_model::forward::{Node, TokenWise};
use duet_scheduler::{OnMiss, Share};
use duet_types::{LaneId, LaneSet, Tokens};
use std::time::Duration;

/// How far a span came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    ToItsEnd,
    /// To a node whose weights are not in memory, and will be after about that time.
    ToMissing {
        /// Nodes of the span that are complete.
        done: usize,
        about: Duration,
    },
}

/// The lanes and the threads of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) lanes: LaneSet,
    /// The threads of these lanes, or those that have their cores.
    pub(crate) crew: &'a dyn Crew,
    /// Rows that devices of the team take.
    pub(crate) shares: &'a [Share],
    /// Kernels that the device has for exactly the rows of this one.
    pub(crate) exact: Option<&'a dyn TokenWise>,
    /// What is done where weights are on disk.
    pub(crate) on_miss: OnMiss,
}

impl<'a> Site<'a> {
    /// These lanes and their threads, with nothing divided and nothing that was made for the rows.
    pub(crate) fn new(lanes: LaneSet, crew: &'a dyn Crew) -> Self {
        Self { lanes, crew, shares: &[], exact: None, on_miss: OnMiss::Waits }
    }

    /// Rows of a token-wise node that the device of a lane takes, of so many that nobody took: all where it is alone.
    pub(super) fn rows_of(&self, lane: LaneId, node: Node, left: usize) -> usize {
        if self.lanes.len() == 1 {
            return left;
        }
        let of_node = |share: &Share| if matches!(node, Node::Qkv { .. }) { share.qkv } else { share.ffn };
        let share = self.shares.iter().find(|share| share.lane == lane);
        share.map_or(Tokens::ZERO, of_node).as_usize().min(left)
    }

    /// The threads alone, where a device did not run a kernel.
    pub(crate) fn without_device(self) -> Self {
        Self { lanes: LaneSet::EMPTY, shares: &[], exact: None, ..self }
    }
}
