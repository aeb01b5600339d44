//! How long compiling the graphs of a layer takes. What was compiled before does not count: it is compiled again.

use crate::layers::layer_blocks;
use crate::placed::{OffloadError, Target, ranges_seen};
use crate::source::Source;
use crate::switching::layer_shelf::Placement;
use duet_graphs::Rows;
use duet_model::Model;
use duet_runtimes::GraphSource;
use duet_types::{Nanos, Tokens};
use std::time::Instant;

/// For each number of rows, compiling both graphs of each of the first `layers` layers, without writing them down.
pub(super) fn compile_times(
    model: &Model,
    placement: &Placement,
    layers: usize,
    rows: &[Tokens],
) -> Result<Vec<Vec<Nanos>>, OffloadError> {
    let device = &*placement.device;
    let target = Target { model: &model.config().name, device, cache: None };
    let seen = ranges_seen(model, device)?;
    let mut times = vec![Vec::new(); rows.len()];
    for layer in 0..layers {
        let blocks = layer_blocks(model, layer, device.rules().weights)?;
        let ranges = seen.as_ref().map(|seen| seen.qkv(layer, &blocks.qkv)).transpose()?;
        let feed_ranges = seen.as_ref().map(|seen| seen.feed_forward(layer, &blocks.feed_forward)).transpose()?;
        for (times, &rows) in times.iter_mut().zip(rows) {
            let rows = Rows::Static(rows);
            let time = |block, ranges| {
                let source = Source::of(&target, &GraphSource { block, rows, ranges })?;
                let start = Instant::now();
                drop(source.obtain(&target)?);
                Ok::<_, OffloadError>(Nanos::from(start.elapsed()))
            };
            let qkv = time(&blocks.qkv, ranges.as_ref())?;
            times.push(qkv + time(&blocks.feed_forward, feed_ranges.as_ref())?);
        }
    }
    Ok(times)
}
