//! Annotations: how long a kernel will take, and whether memory or arithmetic decides it.
//!
//! The paper's roofline through two anchors: `T = max(W / P_eff, Q / B_eff)`, with `P_eff` measured in the most
//! compute-bound case and `B_eff` in the most memory-bound one. Between them a real machine hides only a part of the
//! shorter time behind the longer: the measured share `exposed` of it is added, `T = max + exposed × min`. With
//! `exposed = 0` it is the paper's formula to the letter. (Agent.xpu appendix A)
//!
//! Norms, rope, the cache and the masked parts of attention's tiles are no products of weights: what a row takes for them
//! is measured, and added to the arithmetic (`per_row`; zero in the paper's formula). What products of a few rows take
//! goes in steps, which are measured too ([`few_rows`](crate::few_rows); none in the paper's formula).
//!
//! The last nodes may compute the rows alone that go through the head ([`Heg::for_head`]): of a part of a prompt none.
//!
//! Experts that are on disk are waited for: what is predicted to be missing takes the time of its reading, beside all else
//! ([`OnDisk`](crate::heg::OnDisk); a node of any other model has no such part).
//!
//! Rows of a batch whose contexts differ cost what their sums cost: predictions take a [`Load`] and are O(1).

use crate::heg::{Heg, LayerNodes, Load, TokenWise};
use crate::machine::{Anchors, Bound};
use duet_types::{Nanos, NodeKind};
use std::ops::Range;

/// Work and traffic of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    /// Seconds of arithmetic (`W / P_eff`).
    compute: f64,
    /// Seconds of traffic (`Q / B_eff`).
    memory: f64,
    /// Seconds of waiting for a disk.
    disk: f64,
}

/// What a kernel asks of its lanes and of the memory that they share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// How long it takes when nothing disturbs it, in seconds, with its launch.
    pub seconds: f64,
    /// Bytes that it reads and writes.
    pub bytes: f64,
}

/// How long a kernel over `nodes` takes for `load`; the last node brings the head along.
#[must_use]
pub fn predict(heg: &Heg, anchors: &Anchors, load: &Load, nodes: &Range<usize>) -> Nanos {
    anchors.launch + span_time(heg, anchors, load, nodes)
}

/// [`predict`] without the launch.
#[must_use]
pub fn span_time(heg: &Heg, anchors: &Anchors, load: &Load, nodes: &Range<usize>) -> Nanos {
    Nanos((span_demand(heg, anchors, load, nodes).seconds * 1e9) as u64)
}

/// What [`predict`] says, with the traffic.
#[must_use]
pub fn demand(heg: &Heg, anchors: &Anchors, load: &Load, nodes: &Range<usize>) -> Demand {
    let span = span_demand(heg, anchors, load, nodes);
    Demand { seconds: span.seconds + anchors.launch.as_secs_f64(), ..span }
}

fn span_demand(heg: &Heg, anchors: &Anchors, load: &Load, nodes: &Range<usize>) -> Demand {
    let mut sum = nodes_demand(heg, anchors, load, nodes);
    if nodes.end == heg.nodes() && load.tokens > 0.0 {
        sum.add(anchors, 1, head_cost(heg, anchors, load), anchors.few_rows.factor(load.tokens));
    }
    sum
}

/// Without the head.
fn nodes_demand(heg: &Heg, anchors: &Anchors, load: &Load, nodes: &Range<usize>) -> Demand {
    let (mut sum, order) = (Demand::default(), heg.order());
    for ((nodes, of), load) in heg.by_rows(nodes).into_iter().zip([*load, load.for_head()]) {
        for kind in [NodeKind::Embed].into_iter().chain(order.kinds().map(|(kind, _)| kind)) {
            let count = order.count_of(kind, &nodes);
            if count > 0 && load.rows > 0.0 {
                sum.add(anchors, count, cost_in(heg, &of, anchors, &load, kind), step(anchors, &load, kind));
            }
        }
    }
    sum
}

impl Demand {
    /// So many nodes more.
    fn add(&mut self, anchors: &Anchors, count: usize, cost: Cost, step: f64) {
        self.seconds += count as f64 * (time(anchors, cost) * step + cost.disk);
        self.bytes += count as f64 * cost.memory * anchors.bytes_per_s;
    }
}

/// Rows from which on the matrix products of a pass take longer than reading their weights: where the device saturates.
#[must_use]
pub fn saturating_rows(heg: &Heg, anchors: &Anchors) -> u32 {
    let macs = heg.qkv.macs_per_row + heg.ffn.macs_per_row;
    let row = (macs / anchors.macs_per_s).max(f64::MIN_POSITIVE);
    let read = |rows: f64| (heg.qkv.weights_read(rows) + heg.ffn.weights_read(rows)) / anchors.bytes_per_s / row;
    // More rows read more experts, but ever fewer that no other row reads: from all weights down, this converges.
    let all = (heg.qkv.all_weights() + heg.ffn.all_weights()) / anchors.bytes_per_s / row;
    let rows = (0..SATURATION_STEPS).fold(all, |rows, _| read(rows));
    rows.round().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Each step comes nearer by a factor; a dense model needs one.
const SATURATION_STEPS: usize = 16;

/// How long one node takes for `load`, without a launch.
#[must_use]
pub fn node_time(heg: &Heg, anchors: &Anchors, load: &Load, kind: NodeKind) -> Nanos {
    let cost = cost(heg, anchors, load, kind);
    Nanos(((time(anchors, cost) * step(anchors, load, kind) + cost.disk) * 1e9) as u64)
}

/// How long the node of an index takes for those of the load's rows that it computes, without a launch and without the head.
#[must_use]
pub(crate) fn time_of(heg: &Heg, anchors: &Anchors, load: &Load, index: usize) -> Nanos {
    Nanos((nodes_demand(heg, anchors, load, &(index..index + 1)).seconds * 1e9) as u64)
}

/// What decides the time of a node.
#[must_use]
pub fn bound(heg: &Heg, anchors: &Anchors, load: &Load, kind: NodeKind) -> Bound {
    bound_of(cost(heg, anchors, load, kind))
}

/// What decides the time of a whole pass.
#[must_use]
pub fn pass_bound(heg: &Heg, anchors: &Anchors, load: &Load) -> Bound {
    let layer = heg.order().kinds().map(|(kind, count)| (cost(heg, anchors, load, kind), count as f64));
    bound_of(layer.fold(Cost { compute: 0.0, memory: 0.0, disk: 0.0 }, |sum, (cost, count)| Cost {
        compute: sum.compute + count * cost.compute,
        memory: sum.memory + count * cost.memory,
        disk: sum.disk + count * cost.disk,
    }))
}

fn bound_of(cost: Cost) -> Bound {
    if cost.memory > cost.compute { Bound::Memory } else { Bound::Compute }
}

/// On the lane itself.
fn time(anchors: &Anchors, Cost { compute, memory, .. }: Cost) -> f64 {
    compute.max(memory) + anchors.exposed * compute.min(memory)
}

/// What the roofline's time of a node is to be multiplied with.
fn step(anchors: &Anchors, load: &Load, kind: NodeKind) -> f64 {
    match kind {
        NodeKind::Qkv | NodeKind::Ffn | NodeKind::Route | NodeKind::Experts => anchors.few_rows.factor(load.rows),
        NodeKind::Embed | NodeKind::Attention => 1.0,
    }
}

/// Of a node in whichever layer.
fn cost(heg: &Heg, anchors: &Anchors, load: &Load, kind: NodeKind) -> Cost {
    cost_in(heg, &heg.mean(), anchors, load, kind)
}

/// Of a node in a layer that is like `of`.
fn cost_in(heg: &Heg, of: &LayerNodes, anchors: &Anchors, load: &Load, kind: NodeKind) -> Cost {
    match kind {
        // A copy of one row of the embeddings for each row.
        NodeKind::Embed => Cost { compute: 0.0, memory: load.rows * of.qkv.row_bytes / anchors.bytes_per_s, disk: 0.0 },
        NodeKind::Qkv => with_rows(token_wise(anchors, &of.qkv, load.rows), load.rows * anchors.per_row.qkv),
        NodeKind::Ffn => token_wise(anchors, &of.ffn, load.rows),
        NodeKind::Route => token_wise(anchors, &heg.experts.map_or(of.ffn, |experts| experts.route), load.rows),
        NodeKind::Experts => token_wise(anchors, &heg.experts.map_or(of.ffn, |experts| experts.launch), load.rows),
        NodeKind::Attention => Cost {
            compute: of.attention.pairs(load) * of.attention.macs_per_pair / anchors.attention_macs_per_s
                + load.rows * anchors.per_row.attention,
            memory: (of.attention.positions(load) * of.attention.bytes_per_position
                + load.rows * of.attention.row_bytes)
                / anchors.bytes_per_s,
            disk: 0.0,
        },
    }
}

/// What rows take beside products is arithmetic.
fn with_rows(cost: Cost, seconds: f64) -> Cost {
    Cost { compute: cost.compute + seconds, ..cost }
}

fn head_cost(heg: &Heg, anchors: &Anchors, load: &Load) -> Cost {
    token_wise(anchors, &heg.head, load.tokens)
}

fn token_wise(anchors: &Anchors, node: &TokenWise, rows: f64) -> Cost {
    Cost {
        compute: rows * node.macs_per_row / anchors.macs_per_s,
        memory: (node.weights_read(rows) + rows * node.row_bytes) / anchors.bytes_per_s,
        disk: node.disk_time(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few_rows::FewRows;
    use crate::heg::{ForHead, OnDisk, RoutedWeights, SequenceWise};
    use crate::machine::PerRow;

    fn heg() -> Heg {
        let linear = TokenWise { macs_per_row: 1e6, weight_bytes: 1e6, row_bytes: 0.0, routed: None };
        let attention = SequenceWise { macs_per_pair: 1e3, bytes_per_position: 1e3, row_bytes: 0.0, windowed: None };
        Heg { layers: 2, qkv: linear, ffn: linear, attention, head: linear, experts: None, for_head: None }
    }

    fn anchors(exposed: f64) -> Anchors {
        let (macs_per_s, bytes_per_s) = (1e12, 1e10);
        Anchors {
            macs_per_s,
            attention_macs_per_s: 1e12,
            bytes_per_s,
            launch: Nanos(500),
            exposed,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        }
    }

    /// The knee is at `P_eff / B_eff` = 100 multiply-accumulates a byte: at 100 rows here.
    #[test]
    fn few_rows_are_memory_bound_and_many_compute_bound() {
        let load = |rows| Load { rows, ..Load::default() };
        for (rows, expected, nanos) in
            [(1.0, Bound::Memory, 100_000), (99.0, Bound::Memory, 100_000), (200.0, Bound::Compute, 200_000)]
        {
            assert_eq!(bound(&heg(), &anchors(0.0), &load(rows), NodeKind::Qkv), expected);
            assert_eq!(node_time(&heg(), &anchors(0.0), &load(rows), NodeKind::Qkv), Nanos(nanos));
        }
    }

    #[test]
    fn a_device_saturates_where_its_bounds_meet() {
        assert_eq!(saturating_rows(&heg(), &anchors(0.0)), 100);
    }

    #[test]
    fn what_is_not_hidden_is_added() {
        let load = Load { rows: 50.0, ..Load::default() };
        assert_eq!(node_time(&heg(), &anchors(1.0), &load, NodeKind::Ffn), Nanos(150_000));
        assert_eq!(node_time(&heg(), &anchors(0.5), &load, NodeKind::Ffn), Nanos(125_000));
    }

    #[test]
    fn what_is_on_disk_is_waited_for() {
        let disk = Some(OnDisk { missing: 0.25, bytes_per_s: 1e9 });
        let routed = |disk| Some(RoutedWeights { bytes: 8e6, share: 0.5, disk });
        let ffn = |disk| TokenWise { routed: routed(disk), ..heg().ffn };
        let time = |disk| {
            let heg = Heg { ffn: ffn(disk), ..heg() };
            let load = Load { rows: 1.0, ..Load::default() };
            (node_time(&heg, &anchors(0.0), &load, NodeKind::Ffn), span_time(&heg, &anchors(0.0), &load, &(0..7)))
        };
        // One row reads 4 MB, of which one comes from the disk; there are two layers.
        let ((node, span), (waiting_node, waiting_span)) = (time(None), time(disk));
        assert_eq!(waiting_node, node + Nanos(1_000_000));
        assert_eq!(waiting_span, span + Nanos(2_000_000));
    }

    #[test]
    fn the_last_nodes_take_what_rows_for_the_head_take() {
        let time = |heg: &Heg, tokens| {
            let load = Load { rows: 200.0, pairs: 2_000.0, positions: 20.0, tokens, requests: 1, ..Load::default() };
            [0..5, 5..7, 0..7].map(|nodes| span_time(heg, &anchors(0.0), &load, &nodes))
        };
        let (before, behind) = (heg().mean(), heg().mean());
        let alike = Heg { for_head: Some(ForHead { from: 5, before, behind }), ..heg() };
        // Two products of 200 µs each way, attention of 2 µs; one of 200 more; and of a row each 100, 2 and 100 for the head.
        let all = Nanos(3 * 200_000 + 2_000);
        assert_eq!(time(&alike, 0.0), [all, Nanos::ZERO, all]);
        assert_eq!(time(&alike, 1.0), [all, Nanos(202_000), all + Nanos(202_000)]);
        assert_eq!(time(&alike, 200.0)[1], Nanos(2_000 + 200_000 + 200_000));
        // The last layer's feed-forward is thrice as wide.
        let ffn = TokenWise { macs_per_row: 3e6, weight_bytes: 3e6, ..behind.ffn };
        let wider = Heg { for_head: Some(ForHead { from: 5, before, behind: LayerNodes { ffn, ..behind } }), ..heg() };
        let [before, behind, whole] = time(&wider, 1.0);
        assert_eq!((before, whole), (all, all + Nanos(402_000)));
        assert!(behind.0.abs_diff(402_000) <= 1, "{behind:?}: rounding aside");
    }

    #[test]
    fn spans_add_up_and_the_head_comes_with_the_last_node() {
        let load = Load { rows: 1.0, pairs: 10.0, positions: 10.0, tokens: 1.0, requests: 1, ..Load::default() };
        let whole = span_time(&heg(), &anchors(0.0), &load, &(0..7));
        let parts: Nanos = (0..7).map(|node| span_time(&heg(), &anchors(0.0), &load, &(node..node + 1))).sum();
        assert_eq!(whole, parts);
        // Two layers of 100 + 1 + 100 µs, and the head.
        assert_eq!(whole, Nanos(2 * 201_000 + 100_000));
        assert_eq!(predict(&heg(), &anchors(0.0), &load, &(0..7)), Nanos(500) + whole);
    }
}
