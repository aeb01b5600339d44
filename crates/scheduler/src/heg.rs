//! The heterogeneous execution graph: the nodes a pass goes through, and the work in each.
//!
//! `Embed`, then for each layer three fused kernels, `Qkv`, `Attention` and `Ffn`; the head runs with the last node for
//! the rows that yield a token. `Qkv` and `Ffn` are token-wise: they take any rows of any requests, so they may be
//! chunked and batched. `Attention` is sequence-wise: each row has its own context. Prefill goes through the graph once
//! for each chunk, decode once for each token. (Agent.xpu §4.2)

use crate::kernel::{Member, Yields};
use duet_types::Tokens;
use std::ops::Range;

/// The graph of one model: what its nodes compute and read. All layers are alike.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Heg {
    /// Layers.
    pub layers: usize,
    /// Norm, projection to queries, keys and values, rope, and the cache written.
    pub qkv: TokenWise,
    /// Output projection, norm and feed-forward.
    pub ffn: TokenWise,
    /// Attention of a layer.
    pub attention: SequenceWise,
    /// The last norm and the vocabulary, for rows that yield a token.
    pub head: TokenWise,
}

/// A node whose rows do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TokenWise {
    /// Multiply-accumulates of a row.
    pub macs_per_row: f64,
    /// Weights, read once for all rows.
    pub weight_bytes: f64,
    /// Activations of a row, read and written.
    pub row_bytes: f64,
}

/// A node whose rows see their own context.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SequenceWise {
    /// Multiply-accumulates for a row and a position that it sees.
    pub macs_per_pair: f64,
    /// Keys and values of a position.
    pub bytes_per_position: f64,
    /// Queries and results of a row.
    pub row_bytes: f64,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Embeddings.
    Embed,
    /// Norm, projections, rope, cache.
    Qkv,
    /// Attention.
    Attention,
    /// Output projection and feed-forward.
    Ffn,
}

/// How much is in a pass: all that a prediction needs to know of its members.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Rows.
    pub rows: f64,
    /// Pairs of a row and a position that it sees.
    pub pairs: f64,
    /// Positions whose keys and values are read.
    pub positions: f64,
    /// Rows that yield a token.
    pub tokens: f64,
}

impl Heg {
    /// How many nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        1 + 3 * self.layers
    }

    /// What node `index` is.
    #[must_use]
    pub fn node(&self, index: usize) -> Node {
        match index {
            0 => Node::Embed,
            _ => [Node::Qkv, Node::Attention, Node::Ffn][(index - 1) % 3],
        }
    }

    /// The layer of node `index`; the embeddings go with the first.
    #[must_use]
    pub fn layer(&self, index: usize) -> usize {
        index.saturating_sub(1) / 3
    }

    /// How many nodes of a kind are in a span.
    #[must_use]
    pub fn count(&self, span: &Range<usize>, kind: Node) -> usize {
        let before = |end: usize| match kind {
            Node::Embed => usize::from(end > 0),
            // Of the nodes 1, 4, 7, … how many are below `end`; attention and feed-forward come one and two later.
            Node::Qkv => (end + 1) / 3,
            Node::Attention => end / 3,
            Node::Ffn => end.saturating_sub(1) / 3,
        };
        before(span.end) - before(span.start)
    }
}

impl Load {
    /// The load of some members together.
    pub fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        members.into_iter().fold(Self::default(), |load, member| load.with(member))
    }

    /// This load and one member more.
    #[must_use]
    pub fn with(self, member: &Member) -> Self {
        let head_rows = f64::from(member.head_rows().0);
        Self { tokens: self.tokens + head_rows, ..self.with_rows(member.rows.clone(), Yields::Context) }
    }

    /// This load and one row of a draft more, at the position `at` of a sequence that is in it.
    #[must_use]
    pub fn with_draft_row(self, at: Tokens) -> Self {
        let seen = f64::from(at.0) + 1.0;
        let (rows, pairs, tokens) = (self.rows + 1.0, self.pairs + seen, self.tokens + 1.0);
        Self { rows, pairs, positions: self.positions + 1.0, tokens }
    }

    /// This load and some positions of one request more.
    #[must_use]
    pub fn with_rows(self, rows: Range<Tokens>, yields: Yields) -> Self {
        let (start, end) = (f64::from(rows.start.0), f64::from(rows.end.0));
        let count = end - start;
        Self {
            rows: self.rows + count,
            // Row `p` sees `p + 1` positions.
            pairs: self.pairs + count * (start + end + 1.0) / 2.0,
            positions: self.positions + end,
            tokens: self.tokens + if yields == Yields::Token { 1.0 } else { 0.0 },
        }
    }

    /// The part of this load that `share` of its rows make up.
    #[must_use]
    pub fn part(self, share: f64) -> Self {
        Self { rows: self.rows * share, pairs: self.pairs * share, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_as_they_come() {
        let linear = TokenWise { macs_per_row: 1.0, weight_bytes: 1.0, row_bytes: 0.0 };
        let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 1.0, row_bytes: 0.0 };
        let heg = Heg { layers: 3, qkv: linear, ffn: linear, attention, head: linear };
        for start in 0..=heg.nodes() {
            for end in start..=heg.nodes() {
                for kind in [Node::Embed, Node::Qkv, Node::Attention, Node::Ffn] {
                    let counted = (start..end).filter(|&node| heg.node(node) == kind).count();
                    assert_eq!(heg.count(&(start..end), kind), counted, "{kind:?} in {start}..{end}");
                }
            }
        }
    }

    #[test]
    fn a_row_sees_all_positions_up_to_its_own() {
        let load = Load::default().with_rows(Tokens(2)..Tokens(5), Yields::Token);
        assert_eq!(load, Load { rows: 3.0, pairs: 3.0 + 4.0 + 5.0, positions: 5.0, tokens: 1.0 });
    }
}
