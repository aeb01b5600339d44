//! Random layers for the tests of this crate.

use crate::{Device, ExpertId, LayerCounts, Load, MoeShape, Route, Times};
use duet_types::{Bytes, Nanos, Tokens};
use proptest::prelude::*;
use std::ops::Range;

/// Counts from even to very skewed.
pub(crate) fn counts(experts: Range<usize>) -> impl Strategy<Value = LayerCounts> {
    let load = prop_oneof![Just(0_u64), 1_u64..50, 1_u64..5_000];
    prop::collection::vec(load.prop_map(Load), experts).prop_map(LayerCounts::of)
}

/// A chunk's routes: each row goes to `chosen` different experts.
pub(crate) fn routes(rows: Range<usize>, experts: u32, chosen: usize) -> impl Strategy<Value = Vec<Route>> {
    let all: Vec<u32> = (0..experts).collect();
    let row = (prop::sample::subsequence(all, chosen), prop::collection::vec(0.0_f32..1.0, chosen));
    prop::collection::vec(row, rows).prop_map(|rows| {
        let each = rows.into_iter().enumerate();
        each.flat_map(|(row, (experts, weights))| {
            let routes = experts.into_iter().zip(weights);
            routes.map(move |(expert, weight)| Route {
                row: row as u32,
                expert: ExpertId(expert),
                weight,
                saliency: weight,
            })
        })
        .collect()
    })
}

pub(crate) fn shape() -> MoeShape {
    MoeShape { chunk: Tokens(256), chosen: 2, expert_bytes: Bytes(10) }
}

pub(crate) fn device() -> Device {
    Device {
        tile: Tokens(16),
        graph_bytes_max: Bytes(80),
        group_max: 8,
        resident_bytes_max: Bytes(200),
        times: Times {
            launch: Nanos(500),
            weights: Nanos(0),
            slot: Nanos(5),
            cpu_row: Nanos(20),
            cpu_weights: Nanos(100),
        },
    }
}
