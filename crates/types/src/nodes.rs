//! The nodes that a pass goes through, and their order, which is written here and nowhere else.
//!
//! `Embed`, then for each layer three fused kernels, `Qkv`, `Attention` and `Ffn`; the head runs with the last node for
//! the rows that yield a token. Where a device takes experts in launches of a group each, the feed-forward is `Route` and
//! then a node for each launch, so that a pass can be preempted between any two of them. (Agent.xpu §4.2; NPUMoE §4.2)
//!
//! Invariant: the scheduler, which launches spans of nodes by their indices, and the model, which runs them, mean the same
//! node by the same index.

use std::ops::Range;

/// One node of a pass: what can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Token embeddings into the residual stream.
    Embed,
    /// Norm, QKV projection, rope, and the keys and values written to the cache. Token-wise.
    Qkv {
        /// From 0.
        layer: usize,
    },
    /// Attention over each row's own context. Sequence-wise.
    Attention {
        /// From 0.
        layer: usize,
    },
    /// Output projection, norm and feed-forward, added to the residual stream. Token-wise.
    Ffn {
        /// From 0.
        layer: usize,
    },
    /// The first part of the feed-forward where experts are launched one group after the other: output projection, norm,
    /// and each row's experts chosen. All rows of a pass at once.
    Route {
        /// From 0.
        layer: usize,
    },
    /// One launch of experts; the first one computes what no launch does, too. All rows of a pass at once.
    Experts {
        /// From 0.
        layer: usize,
        /// From 0.
        launch: usize,
    },
}

/// What a node is, whichever layer's: predictions take the mean of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// [`Node::Embed`].
    Embed,
    /// [`Node::Qkv`].
    Qkv,
    /// [`Node::Attention`].
    Attention,
    /// [`Node::Ffn`].
    Ffn,
    /// [`Node::Route`].
    Route,
    /// [`Node::Experts`].
    Experts,
}

/// How many nodes a pass has, and which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOrder {
    layers: usize,
    /// Of experts, in each layer; none: the feed-forward is one node.
    launches: usize,
}

impl Node {
    /// What it is.
    #[must_use]
    pub fn kind(self) -> NodeKind {
        match self {
            Self::Embed => NodeKind::Embed,
            Self::Qkv { .. } => NodeKind::Qkv,
            Self::Attention { .. } => NodeKind::Attention,
            Self::Ffn { .. } => NodeKind::Ffn,
            Self::Route { .. } => NodeKind::Route,
            Self::Experts { .. } => NodeKind::Experts,
        }
    }

    /// Whether each row is computed by itself, with dense weights: what may be divided over executors.
    #[must_use]
    pub fn is_token_wise(self) -> bool {
        matches!(self, Self::Qkv { .. } | Self::Ffn { .. })
    }
}

impl NodeKind {
    /// Whether some of its rows can be computed without the others. Which rows go to which expert is known to all
    /// together.
    #[must_use]
    pub fn divides_rows(self) -> bool {
        !matches!(self, Self::Route | Self::Experts)
    }

    /// The node of this kind in a layer; of launches, this one.
    fn of(self, layer: usize, launch: usize) -> Node {
        match self {
            Self::Embed => Node::Embed,
            Self::Qkv => Node::Qkv { layer },
            Self::Attention => Node::Attention { layer },
            Self::Ffn => Node::Ffn { layer },
            Self::Route => Node::Route { layer },
            Self::Experts => Node::Experts { layer, launch },
        }
    }
}

impl NodeOrder {
    /// Three nodes a layer.
    #[must_use]
    pub fn fused(layers: usize) -> Self {
        Self::with_launches(layers, 0)
    }

    /// With so many launches in each layer.
    #[must_use]
    pub fn with_launches(layers: usize, launches: usize) -> Self {
        Self { layers, launches }
    }

    /// Nodes of a pass.
    #[must_use]
    pub fn count(self) -> usize {
        self.first_node(self.layers)
    }

    /// The first node of a layer; the head's place for the layer behind the last.
    #[must_use]
    pub fn first_node(self, layer: usize) -> usize {
        1 + layer * self.of_layer()
    }

    /// The layer of node `index`; the embeddings go with the first.
    #[must_use]
    pub fn layer(self, index: usize) -> usize {
        index.saturating_sub(1) / self.of_layer()
    }

    /// Node `index` of a pass.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn node(self, index: usize) -> Node {
        assert!(index < self.count());
        let Some(place) = index.checked_sub(self.first_node(self.layer(index))) else { return Node::Embed };
        let here = |(kind, places): &(NodeKind, Range<usize>)| {
            places.contains(&place).then(|| kind.of(self.layer(index), place - places.start))
        };
        self.places().iter().find_map(here).expect("each place of a layer has a kind")
    }

    /// What node `index` is; behind the last one, what another layer would begin with: a pass that is through all nodes
    /// stands there until it has ended.
    #[must_use]
    pub fn kind(self, index: usize) -> NodeKind {
        let Some(behind) = index.checked_sub(1) else { return NodeKind::Embed };
        let place = behind % self.of_layer();
        self.places()
            .into_iter()
            .find(|(_, places)| places.contains(&place))
            .map_or(NodeKind::Experts, |(kind, _)| kind)
    }

    /// All of them.
    pub fn nodes(self) -> impl Iterator<Item = Node> {
        (0..self.count()).map(move |index| self.node(index))
    }

    /// What is in a layer, in order, and how often.
    pub fn kinds(self) -> impl Iterator<Item = (NodeKind, usize)> {
        self.places().into_iter().map(|(kind, places)| (kind, places.len())).filter(|(_, count)| *count > 0)
    }

    /// How many nodes of a kind are in a span. O(1).
    #[must_use]
    pub fn count_of(self, kind: NodeKind, span: &Range<usize>) -> usize {
        let before = |end: usize| {
            let Some(behind) = end.checked_sub(1) else { return 0 };
            if kind == NodeKind::Embed {
                return 1;
            }
            let (layers, rest) = (behind / self.of_layer(), behind % self.of_layer());
            let of = |places: Range<usize>| layers * places.len() + rest.saturating_sub(places.start).min(places.len());
            self.places().into_iter().find(|(other, _)| *other == kind).map_or(0, |(_, places)| of(places))
        };
        before(span.end) - before(span.start)
    }

    /// The order itself: what a layer consists of, and at which places in it.
    fn places(self) -> [(NodeKind, Range<usize>); 4] {
        let feed = if self.launches == 0 { NodeKind::Ffn } else { NodeKind::Route };
        let launches = (NodeKind::Experts, 3..3 + self.launches);
        [(NodeKind::Qkv, 0..1), (NodeKind::Attention, 1..2), (feed, 2..3), launches]
    }

    fn of_layer(self) -> usize {
        let [.., (_, last)] = self.places();
        last.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_follow_the_node_that_routes() {
        let nodes: Vec<Node> = NodeOrder::with_launches(2, 2).nodes().collect();
        let of = |layer| {
            [
                Node::Qkv { layer },
                Node::Attention { layer },
                Node::Route { layer },
                Node::Experts { layer, launch: 0 },
                Node::Experts { layer, launch: 1 },
            ]
        };
        assert_eq!(nodes, [vec![Node::Embed], of(0).to_vec(), of(1).to_vec()].concat());
        assert_eq!(NodeOrder::fused(2).nodes().last(), Some(Node::Ffn { layer: 1 }));
    }

    #[test]
    fn kinds_are_counted_as_they_come() {
        use NodeKind::{Attention, Embed, Experts, Ffn, Qkv, Route};
        for (launches, nodes) in [(0, 10), (1, 13), (4, 22)] {
            let order = NodeOrder::with_launches(3, launches);
            assert_eq!(order.count(), nodes);
            assert_eq!(1 + 3 * order.kinds().map(|(_, count)| count).sum::<usize>(), nodes);
            for start in 0..=nodes {
                for end in start..=nodes {
                    for kind in [Embed, Qkv, Attention, Ffn, Route, Experts] {
                        let counted = (start..end).filter(|&node| order.kind(node) == kind).count();
                        assert_eq!(order.count_of(kind, &(start..end)), counted, "{kind:?} in {start}..{end}");
                    }
                }
            }
        }
    }
}
