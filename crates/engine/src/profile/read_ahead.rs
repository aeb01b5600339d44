//! How products of few rows fetch their weights, which is tried with one row on all cores, as it is when an answer is written. It
//! comes before anything else that reads weights, since all that is measured reads them so.

use super::ProfileError;
use super::bench::{Bench, Shape, on};
use super::times::sizes;
use duet_device::CpuLanes;
use duet_kernels::read_ahead::ReadAhead;
use duet_model::forward::Node;
use duet_types::LaneSet;
use serde::{Deserialize, Deserializer, Serializer};

/// Tries them, and leaves the fastest chosen: a fifth of a second, more if seven turns of each take longer.
pub(super) fn try_all(bench: &Bench, lanes: &CpuLanes, cores: LaneSet) -> Result<ReadAhead, ProfileError> {
    let bench = bench.clone();
    on(lanes, cores, move |site| {
        let layers = bench.layers_of_a_row(site.lanes);
        let (_, context) = sizes(&bench.model);
        let mut pass = bench.pass(&[Shape { context, rows: 1 }])?;
        let nodes = |layer| [Node::Qkv { layer }, Node::Attention { layer }, Node::Ffn { layer }];
        ReadAhead::tried(|| Ok(bench.time(&mut pass, layers.clone().flat_map(nodes), site)?.as_secs_f64()))
    })?
}

/// As a profile's file has it: by name.
pub(super) fn serialize<S: Serializer>(way: &Option<ReadAhead>, to: S) -> Result<S::Ok, S::Error> {
    match way {
        Some(way) => to.collect_str(way),
        None => to.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ReadAhead>, D::Error> {
    let name = Option::<String>::deserialize(from)?;
    name.map(|name| name.parse().map_err(serde::de::Error::custom)).transpose()
}
