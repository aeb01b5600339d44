//! The heterogeneous execution graph of a loaded model.

use duet_model::arch::Recurrent;
use duet_model::kv::{KvFormat, PAGE_TOKENS};
use duet_model::{Linear, Model};
use duet_scheduler::Heg;
use duet_scheduler::heg::{RoutedWeights, SequenceWise, TokenWise};

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
    }
}
