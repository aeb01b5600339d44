//! How a device and the cores share the rows of a kernel that is launched on both: so that they end together, as the
//! annotations of their lanes predict it. (Agent.xpu §4.3 ④)

use duet_model::forward::Node;
use duet_scheduler::elastic::balance;
use duet_scheduler::heg::{self, Heg, Load};
use duet_scheduler::machine::Anchors;
use duet_scheduler::{Yields, annotation};
use duet_types::Tokens;

/// What the shares follow from.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    heg: Heg,
    device: Anchors,
    cores: Anchors,
}

impl Sharing {
    pub(crate) fn new(heg: Heg, device: Anchors, cores: Anchors) -> Self {
        Self { heg, device, cores }
    }

    /// The device's share of `rows` rows of a node.
    pub(crate) fn device_rows(&self, node: Node, rows: Tokens) -> Tokens {
        let kind = match node {
            Node::Embed | Node::Attention { .. } | Node::Route { .. } | Node::Experts { .. } => return Tokens::ZERO,
            Node::Qkv { .. } => heg::Node::Qkv,
            Node::Ffn { .. } => heg::Node::Ffn,
        };
        let time = |anchors| {
            move |rows| {
                let load = Load::default().with_rows(Tokens::ZERO..rows, Yields::Context);
                annotation::node_time(&self.heg, anchors, &load, kind)
            }
        };
        balance(rows, TILE, time(&self.device), time(&self.cores))
    }
}

/// Rows are shared in whole tiles of the matrix products.
const TILE: Tokens = Tokens(16);

#[cfg(test)]
mod tests {
    use super::*;
    use duet_scheduler::heg::{SequenceWise, TokenWise};
    use duet_scheduler::machine::{FewRows, PerRow};
    use duet_types::Nanos;

    #[test]
    fn the_faster_one_takes_more_and_attention_is_not_shared() {
        let linear = TokenWise { macs_per_row: 1e6, weight_bytes: 1e6, row_bytes: 0.0, routed: None };
        let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 0.0, row_bytes: 0.0 };
        let heg = Heg { layers: 1, qkv: linear, ffn: linear, attention, head: linear, experts: None };
        let lane = |macs_per_s| Anchors {
            macs_per_s,
            attention_macs_per_s: 1e9,
            bytes_per_s: 1e12,
            launch: Nanos::ZERO,
            exposed: 0.0,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        };
        let sharing = Sharing::new(heg, lane(3e9), lane(1e9));
        assert_eq!(sharing.device_rows(Node::Ffn { layer: 0 }, Tokens(256)), Tokens(192));
        assert_eq!(sharing.device_rows(Node::Attention { layer: 0 }, Tokens(256)), Tokens(0));
    }
}
