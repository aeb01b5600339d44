//! How fast keys and values get to a device that attends to copies of them: one row of attention that finds none, beside the same
//! row again.
//!
//! The fastest pair counts. What is measured is the whole way, with the positions' own conversion and the device's bookkeeping.

use super::ProfileError;
use super::bench::{Bench, Shape, fastest, on};
use crate::executors::Site;
use duet_device::CpuLanes;
use duet_model::arch::Mixer;
use duet_model::forward::Node;
use duet_scheduler::machine::MemoryDomain;
use duet_types::{LaneId, LaneSet};

/// Where the keys and values lie that a lane attends to.
pub(super) fn memory(bench: &Bench, lanes: &CpuLanes, lane: LaneId) -> Result<MemoryDomain, ProfileError> {
    let device = bench.executors.device(lane);
    let Some(room) = device.and_then(|device| device.spans.as_ref()).and_then(|spans| spans.copies_room()) else {
        return Ok(MemoryDomain::Host);
    };
    let timed = bench.clone();
    let bytes_per_s = on(lanes, LaneSet::from_iter([lane]), move |site| bytes_per_s(&timed, site))??;
    tracing::info!(?lane, bytes_per_s, "copies to a device's memory were measured");
    Ok(MemoryDomain::Own { bytes_per_s, room })
}

fn bytes_per_s(bench: &Bench, site: Site<'_>) -> Result<f64, ProfileError> {
    let context = CONTEXT.min(bench.model.config().context.as_usize().saturating_sub(1));
    let all = &bench.model.blueprint().layers;
    // Of layers with a window less is copied.
    let attend = |layer: &usize| all[*layer].window.is_none() && all[*layer].mixer == Mixer::Attention;
    let layers: Vec<usize> = bench.layers(site.lanes).filter(attend).take(LAYERS).collect();
    let nodes = || layers.iter().map(|&layer| Node::Attention { layer });
    let mut seconds = Vec::new();
    // The first sample makes memory ready.
    for sample in 0..=SAMPLES {
        // Each is another sequence, of which the device has nothing.
        let mut pass = bench.pass(&[Shape { context, rows: 1 }])?;
        let lacking = bench.time(&mut pass, nodes(), site)?;
        let there = bench.time(&mut pass, nodes(), site)?;
        if sample > 0 {
            seconds.push(lacking.saturating_sub(there).as_secs_f64());
        }
    }
    let bytes = bench.position_bytes() * (context * layers.len()).max(1) as f64;
    Ok(bytes / fastest(seconds).max(LEAST))
}

/// Positions that are copied, where the context is as long.
const CONTEXT: usize = 1024;
/// Layers of a sample.
const LAYERS: usize = 4;
const SAMPLES: usize = 4;
/// Seconds: a shorter difference is none that can be told.
const LEAST: f64 = 1e-6;
