//! The order of a pass's nodes.
//!
//! Embeddings, then for each layer projection, attention and feed-forward. Where experts are launched on a device in
//! groups, each launch is a node of its own, behind one that routes, so that something else may run between any two.
//! (Agent.xpu §4.2; NPUMoE §4.2)

use super::Node;

/// How many nodes a pass has, and which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOrder {
    layers: usize,
    /// Of experts, in each layer; none: the feed-forward is one node.
    launches: usize,
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
    pub fn count(&self) -> usize {
        1 + self.layers * self.of_layer()
    }

    /// Node `index` of a pass.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn node(&self, index: usize) -> Node {
        assert!(index < self.count());
        let Some(after) = index.checked_sub(1) else { return Node::Embed };
        let layer = after / self.of_layer();
        match after % self.of_layer() {
            0 => Node::Qkv { layer },
            1 => Node::Attention { layer },
            2 if self.launches == 0 => Node::Ffn { layer },
            2 => Node::Route { layer },
            behind => Node::Experts { layer, launch: behind - 3 },
        }
    }

    /// All of them.
    pub fn nodes(self) -> impl Iterator<Item = Node> {
        (0..self.count()).map(move |index| self.node(index))
    }

    fn of_layer(&self) -> usize {
        3 + self.launches
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
}
