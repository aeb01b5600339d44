//! The heterogeneous execution graph of a loaded model.

use duet_model::arch::Recurrent;
use duet_model::kv::{KvFormat, PAGE_TOKENS};
use duet_model::{Linear, Model};
use duet_scheduler::Heg;
use duet_scheduler::heg::{OnDisk, RoutedWeights, SequenceWise, TokenWise};

/// The same graph with what has to be read from a disk, where experts are on one: the share of them that memory has no room
/// for, at the speed at which one was just read. Rows go to some experts more often than to others, and these are the ones in
/// memory, so less is missing than that; what is predicted too long is put right as all else is (`scheduler/src/drift.rs`).
pub(crate) fn with_disk(mut heg: Heg, model: &Model) -> Heg {
    if let (Some(routed), Some(memory)) = (&mut heg.ffn.routed, model.expert_memory())
        && let Some((bytes, time)) = model.probe_experts()
    {
        let all = (routed.bytes * heg.layers as f64).max(1.0);
        let missing = (1.0 - memory.0 as f64 / all).max(0.0);
        routed.disk = Some(OnDisk { missing, bytes_per_s: bytes.0 as f64 / time.as_secs_f64().max(1e-9) });
    }
    heg
}

/// What the nodes of `model` compute and read.
#[must_use]
pub fn heg(model: &Model, kv: KvFormat) -> Heg {
    let (work, blueprint) = (model.work(), model.blueprint());
    let width = |values: usize| (values * size_of::<f32>()) as f64;
    let token_wise = |linear: Linear, row_bytes: f64| TokenWise {
        macs_per_row: linear.macs as f64,
        weight_bytes: linear.bytes.0 as f64,
        row_bytes,
        routed: linear.routed.map(|routed| RoutedWeights {
            bytes: routed.bytes.0 as f64,
            share: routed.chosen as f64 / routed.experts as f64,
            disk: None,
        }),
    };
    let queries = blueprint.heads * blueprint.head_dim;
    let keys = blueprint.kv_heads * blueprint.head_dim;
    // What each expert makes of a row, before it is added.
    let places = blueprint.experts.map_or(0, |experts| experts.chosen + usize::from(experts.shared.is_some()));
    // Other layers look back a few positions only, or at matrices, which cost a row the same wherever it is.
    let attending = blueprint.attention_layers() as f64 / work.layers.max(1) as f64;
    let matrices = match blueprint.recurrent {
        Some(Recurrent::Matrices(shape)) => shape.macs() as f64 * (1.0 - attending),
        _ => 0.0,
    };
    let mut qkv = token_wise(work.qkv, width(blueprint.hidden + queries + 2 * keys));
    qkv.macs_per_row += matrices;
    let page = model.kv_layout(kv).page_bytes() as f64;
    Heg {
        layers: work.layers,
        qkv,
        ffn: token_wise(work.ffn, width((2 + places) * blueprint.hidden + blueprint.active_ffn())),
        attention: SequenceWise {
            // A score and its share of the result, for every dimension of every head.
            macs_per_pair: 2.0 * queries as f64 * attending,
            bytes_per_position: page / PAGE_TOKENS as f64 / work.layers.max(1) as f64,
            row_bytes: width(2 * queries),
        },
        head: token_wise(work.head, width(blueprint.hidden + blueprint.vocabulary)),
        experts: None,
        for_all_rows: Some(model.nodes_for_all_rows()),
    }
}
