//! The heterogeneous execution graph: the nodes a pass goes through, and the work in each.
//!
//! `Embed`, then for each layer three fused kernels, `Qkv`, `Attention` and `Ffn`; the head runs with the last node for
//! the rows that yield a token. `Qkv` and `Ffn` are token-wise: they take any rows of any requests, so they may be
//! chunked and batched. `Attention` is sequence-wise: each row has its own context. Prefill goes through the graph once
//! for each chunk, decode once for each token. (Agent.xpu §4.2)
//!
//! Where a device takes experts in launches of a group each, the feed-forward is `Route` and then a node for each launch,
//! so that a pass can be preempted between any two of them. These take all rows of a pass at once: which go where is
//! known to all rows together. (NPUMoE §4.2)

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
    /// The feed-forward in parts, where experts are launched in groups; it is one node otherwise.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub experts: Option<ExpertLaunches>,
}

/// The parts of a feed-forward whose experts are launched in groups.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExpertLaunches {
    /// Launches of a layer at most.
    pub launches: usize,
    /// Output projection, norm, and each row's experts chosen.
    pub route: TokenWise,
    /// A launch, one like the other.
    pub launch: TokenWise,
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
    /// Weights of which each row reads some, once for all rows that read the same: experts.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub routed: Option<RoutedWeights>,
}

/// Weights of experts: a row reads those of the experts it goes to.
///
/// Which these are is known only when the rows are computed, so a prediction takes every expert as equally likely and rows
/// as independent: `n` rows read `1 - (1 - share)^n` of the weights. Rows of one text go to the same experts more often
/// than that, so that few rows read somewhat less.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RoutedWeights {
    /// Weights of all experts.
    pub bytes: f64,
    /// The share of the experts that one row goes to.
    pub share: f64,
}

impl TokenWise {
    /// Bytes of weights that `rows` rows read.
    #[must_use]
    pub fn weights_read(&self, rows: f64) -> f64 {
        let read = |routed: RoutedWeights| routed.bytes * (1.0 - (1.0 - routed.share.clamp(0.0, 1.0)).powf(rows));
        self.weight_bytes + self.routed.map_or(0.0, read)
    }

    /// Bytes of weights in all.
    #[must_use]
    pub fn all_weights(&self) -> f64 {
        self.weight_bytes + self.routed.map_or(0.0, |routed| routed.bytes)
    }
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
    /// Output projection, and experts chosen.
    Route,
    /// A launch of experts.
    Experts,
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
        self.first_node(self.layers)
    }

    /// The first node of a layer; the head's place for the layer behind the last.
    #[must_use]
    pub fn first_node(&self, layer: usize) -> usize {
        1 + layer * self.of_layer()
    }

    /// What node `index` is.
    #[must_use]
    pub fn node(&self, index: usize) -> Node {
        let Some(after) = index.checked_sub(1) else { return Node::Embed };
        match (after % self.of_layer(), self.experts) {
            (0, _) => Node::Qkv,
            (1, _) => Node::Attention,
            (2, None) => Node::Ffn,
            (2, Some(_)) => Node::Route,
            _ => Node::Experts,
        }
    }

    /// What is in a layer, and how often.
    pub fn kinds(&self) -> impl Iterator<Item = (Node, usize)> {
        let feed = match self.experts {
            None => [(Node::Ffn, 1), (Node::Experts, 0)],
            Some(experts) => [(Node::Route, 1), (Node::Experts, experts.launches)],
        };
        [(Node::Qkv, 1), (Node::Attention, 1)].into_iter().chain(feed).filter(|(_, count)| *count > 0)
    }

    /// The layer of node `index`; the embeddings go with the first.
    #[must_use]
    pub fn layer(&self, index: usize) -> usize {
        index.saturating_sub(1) / self.of_layer()
    }

    /// How many nodes of a kind are in a span.
    #[must_use]
    pub fn count(&self, span: &Range<usize>, kind: Node) -> usize {
        let before = |end: usize| {
            let Some(behind) = end.checked_sub(1) else { return 0 };
            let (layers, rest) = (behind / self.of_layer(), behind % self.of_layer());
            // In each layer, from this place on, so many.
            let of = |place: usize, count: usize| layers * count + rest.saturating_sub(place).min(count);
            match (kind, self.experts) {
                (Node::Embed, _) => 1,
                (Node::Qkv, _) => of(0, 1),
                (Node::Attention, _) => of(1, 1),
                (Node::Ffn, None) | (Node::Route, Some(_)) => of(2, 1),
                (Node::Experts, Some(experts)) => of(3, experts.launches),
                (Node::Ffn, Some(_)) | (Node::Route | Node::Experts, None) => 0,
            }
        };
        before(span.end) - before(span.start)
    }

    fn of_layer(&self) -> usize {
        3 + self.experts.map_or(0, |experts| experts.launches)
    }
}

impl Node {
    /// Whether some of its rows can be computed without the others.
    #[must_use]
    pub fn divides_rows(self) -> bool {
        !matches!(self, Self::Route | Self::Experts)
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
        let linear = TokenWise { macs_per_row: 1.0, weight_bytes: 1.0, row_bytes: 0.0, routed: None };
        let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 1.0, row_bytes: 0.0 };
        let heg = Heg { layers: 3, qkv: linear, ffn: linear, attention, head: linear, experts: None };
        let launched =
            |launches| Heg { experts: Some(ExpertLaunches { launches, route: linear, launch: linear }), ..heg.clone() };
        for (heg, nodes) in [(heg.clone(), 10), (launched(1), 13), (launched(4), 22)] {
            assert_eq!(heg.nodes(), nodes);
            assert_eq!(1 + heg.layers * heg.kinds().map(|(_, count)| count).sum::<usize>(), nodes);
            for start in 0..=heg.nodes() {
                for end in start..=heg.nodes() {
                    for kind in [Node::Embed, Node::Qkv, Node::Attention, Node::Ffn, Node::Route, Node::Experts] {
                        let counted = (start..end).filter(|&node| heg.node(node) == kind).count();
                        assert_eq!(heg.count(&(start..end), kind), counted, "{kind:?} in {start}..{end}");
                    }
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
