//! How a model's weights are asked for ahead of use, which is tried with one row on all cores: the first thing of a profile, since
//! all that is measured after it reads them so.

use super::ProfileError;
use super::bench::{Bench, Shape, on};
use duet_device::CpuLanes;
use duet_kernels::read_ahead::ReadAhead;
use duet_types::LaneSet;
use serde::{Deserialize, Deserializer, Serializer};

/// Tries them, and leaves the fastest chosen: some tenths of a second.
pub(super) fn try_all(bench: &Bench, lanes: &CpuLanes, cores: LaneSet) -> Result<ReadAhead, ProfileError> {
    let bench = bench.clone();
    on(lanes, cores, move |site| {
        let layers = bench.layers(site.lanes);
        let mut pass = bench.pass(&[Shape { context: 0, rows: 1 }])?;
        ReadAhead::tried(|| Ok(bench.time(&mut pass, Bench::token_wise(layers.clone()), site)?.as_secs_f64()))
    })?
}

/// As a profile's file has it: by name.
pub(super) fn serialize<S: Serializer>(way: &ReadAhead, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(way)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ReadAhead, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}
