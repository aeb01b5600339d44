//! Rows that are read behind the last layer: by the head, or by whoever wants their hidden states.
//!
//! Of a prompt that is its last row, and of a part of a prompt none. The others are there for what later positions read of
//! them, keys and values, so whatever only the head could read of them is not computed: of the last layer that keeps
//! something of a row the feed-forward block, and attention if what it keeps are keys and values; and all of the layers
//! behind it, which read what earlier ones keep (Gemma 4). A row that is left out has the residual stream there that the
//! layers before left it.
//!
//! A device that runs a span of nodes, or all rows of a node, may compute more rows. Nobody reads them.

use super::Pass;
use crate::load::Model;
use duet_types::Node;
use std::ops::Range;

impl Pass {
    /// Says which rows are read behind the last layer, before the layers are run. All of them, if nobody says so.
    ///
    /// # Panics
    /// If a row does not exist.
    pub fn set_head_rows(&mut self, rows: Range<usize>) {
        assert!(rows.start <= rows.end && rows.end <= self.rows());
        self.head_rows = rows;
    }

    /// The rows that are read behind the last layer, and perhaps some between them.
    #[must_use]
    pub fn head_rows(&self) -> Range<usize> {
        self.head_rows.clone()
    }

    /// What a reader of hidden states has to make sure of.
    pub(super) fn assert_read(&self, rows: &Range<usize>) {
        let read = &self.head_rows;
        assert!(rows.is_empty() || (read.start <= rows.start && rows.end <= read.end), "{rows:?} of {read:?} are read");
    }
}

impl Model {
    /// Those of some rows of a pass that have to be computed in a node, from the first to the last of them.
    #[must_use]
    pub fn rows_of(&self, pass: &Pass, node: Node, rows: Range<usize>) -> Range<usize> {
        if !self.is_for_head_alone(node) {
            return rows;
        }
        let read = pass.head_rows();
        let start = rows.start.max(read.start);
        start..rows.end.min(read.end).max(start)
    }

    /// How many of a pass's first nodes compute something that other rows read; what the nodes behind them make of a row, the
    /// head alone reads.
    #[must_use]
    pub fn nodes_for_all_rows(&self) -> usize {
        let order = self.order();
        (0..order.count()).find(|&index| self.is_for_head_alone(order.node(index))).unwrap_or(order.count())
    }

    /// Whether nothing of what a node makes of a row is read by another row, here or in a later node. Launches of experts take
    /// all rows together.
    fn is_for_head_alone(&self, node: Node) -> bool {
        let last = self.blueprint().last_that_keeps();
        match node {
            Node::Embed | Node::Route { .. } | Node::Experts { .. } => false,
            Node::Qkv { layer } => layer > last,
            Node::Attention { layer } => layer > last || (layer == last && !self.blueprint().is_recurrent(layer)),
            Node::Ffn { layer } => layer >= last,
        }
    }
}
