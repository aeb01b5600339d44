//! The heterogeneous execution graph of a loaded model.

use duet_kernels::attention::KvLayout;
use duet_model::arch::{Blueprint, WideHeads};
use duet_model::kv::{KvFormat, PAGE_TOKENS};
use duet_model::{Linear, Model};
use duet_scheduler::Heg;
use duet_scheduler::heg::{ForHead, LayerNodes, OnDisk, RoutedWeights, SequenceWise, TokenWise, Windowed};
use duet_types::Node;
use std::ops::Range;

/// The same graph with what has to be read from a disk, where experts are on one: the share of them that memory has no room
/// for, at the speed at which one was just read. Rows go to some experts more often than to others, and these are the ones in
/// memory, so less is missing than that; what is predicted too long is put right as all else is (`scheduler/src/drift.rs`).
pub(crate) fn with_disk(heg: Heg, model: &Model) -> Heg {
    if let (Some(routed), Some(memory)) = (heg.ffn.routed, model.expert_memory())
        && let Some((bytes, time)) = model.probe_experts()
    {
        let all = (routed.bytes * heg.layers as f64).max(1.0);
        let missing = (1.0 - memory.0 as f64 / all).max(0.0);
        let disk = OnDisk { missing, bytes_per_s: bytes.0 as f64 / time.as_secs_f64().max(1e-9) };
        return heg.on_disk(Some(disk));
    }
    heg
}

/// What the nodes of `model` compute and read.
#[must_use]
pub fn heg(model: &Model, kv: KvFormat) -> Heg {
    let (order, blueprint, head) = (model.order(), model.blueprint(), model.work().head);
    let nodes = |range: Range<usize>| mean_of(model, kv, range.map(|index| order.node(index)));
    let from = model.nodes_for_all_rows();
    let LayerNodes { qkv, ffn, attention } = nodes(0..order.count());
    Heg {
        layers: blueprint.layers.len(),
        qkv,
        ffn,
        attention,
        head: token_wise(head, width(blueprint.hidden + blueprint.vocabulary)),
        experts: None,
        for_head: Some(ForHead { from, before: nodes(0..from), behind: nodes(from..order.count()) }),
    }
}

/// The mean of those of some nodes that are of a kind, for each kind.
pub(super) fn mean_of(model: &Model, kv: KvFormat, nodes: impl Iterator<Item = Node>) -> LayerNodes {
    let b = model.blueprint();
    let (mut qkv, mut ffn, mut attention) = (Vec::new(), Vec::new(), Vec::new());
    for node in nodes {
        match node {
            Node::Qkv { layer } => qkv.push((model.linear_of(node), width(qkv_row(b, layer)))),
            Node::Ffn { layer } => ffn.push((model.linear_of(node), width(ffn_row(b, layer)))),
            Node::Attention { layer } => attention.push(attention_of(b, kv, layer)),
            Node::Embed | Node::Route { .. } | Node::Experts { .. } => {}
        }
    }
    let products = |of: &[(Linear, f64)]| {
        token_wise(Linear::mean(of.iter().map(|(linear, _)| *linear)), mean(of.iter().map(|(_, row)| *row)))
    };
    LayerNodes { qkv: products(&qkv), ffn: products(&ffn), attention: mean_attention(&attention) }
}

fn token_wise(linear: Linear, row_bytes: f64) -> TokenWise {
    TokenWise {
        macs_per_row: linear.macs as f64,
        weight_bytes: linear.bytes.0 as f64,
        row_bytes,
        routed: linear.routed.map(|routed| RoutedWeights {
            bytes: routed.bytes.0 as f64,
            share: routed.chosen as f64 / routed.experts as f64,
            disk: None,
        }),
    }
}

/// Values of a row that are read and written: of the stream, and of queries, keys and values.
fn qkv_row(b: &Blueprint, layer: usize) -> usize {
    let WideHeads { kv_heads, head_dim } = b.heads_of(layer);
    b.hidden + (b.heads + 2 * kv_heads) * head_dim
}

/// The same of the stream, of a block's width, and of what each expert makes of a row, before it is added.
fn ffn_row(b: &Blueprint, layer: usize) -> usize {
    let experts = b.experts_of(layer);
    let places = experts.map_or(0, |experts| experts.chosen + usize::from(experts.shared.is_some()));
    (2 + places) * b.hidden + experts.map_or(b.ffn_of(layer), |experts| experts.active_ffn())
}

/// A layer's attention, and its window. What recurrent layers have in its place takes a row as long wherever the row is.
fn attention_of(b: &Blueprint, kv: KvFormat, layer: usize) -> (SequenceWise, Option<usize>) {
    let WideHeads { kv_heads, head_dim } = b.heads_of(layer);
    let queries = b.heads * head_dim;
    let attends = f64::from(u8::from(!b.is_recurrent(layer)));
    let attention = SequenceWise {
        // A score and its share of the result, for every dimension of every head.
        macs_per_pair: attends * 2.0 * queries as f64,
        bytes_per_position: attends * KvLayout::uniform(1, kv_heads, head_dim, kv).page_bytes() as f64
            / PAGE_TOKENS as f64,
        row_bytes: width(2 * queries),
        windowed: None,
    };
    (attention, b.layers[layer].window)
}

fn mean_attention(layers: &[(SequenceWise, Option<usize>)]) -> SequenceWise {
    let of = |part: fn(&SequenceWise) -> f64| mean(layers.iter().map(|(attention, _)| part(attention)));
    let macs_per_pair = of(|attention| attention.macs_per_pair);
    let bytes_per_position = of(|attention| attention.bytes_per_position);
    let windowed = || layers.iter().filter(|(_, window)| window.is_some()).map(|(attention, _)| attention);
    // All layers' is more than nothing where there are any that attend.
    let share = |part: f64, mean: f64| part / (mean * layers.len() as f64).max(1.0);
    let widest = layers.iter().filter_map(|(_, window)| *window).max();
    SequenceWise {
        macs_per_pair,
        bytes_per_position,
        row_bytes: of(|attention| attention.row_bytes),
        windowed: widest.map(|window| Windowed {
            window: window as f64,
            share: share(windowed().map(|of| of.macs_per_pair).sum(), macs_per_pair),
            share_of_bytes: share(windowed().map(|of| of.bytes_per_position).sum(), bytes_per_position),
        }),
    }
}

/// Zero of none.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

/// Bytes of so many values.
fn width(values: usize) -> f64 {
    (values * size_of::<f32>()) as f64
}
