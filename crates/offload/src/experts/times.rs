//! How long experts take on a device and on the CPU, measured when they are placed: whether a launch is worth it follows
//! from that. (NPUMoE §4.3)
//!
//! A launch and its slots are told apart by the same group at two capacities; `cpu_times.rs` has the CPU's part.

use super::cpu_times;
use super::filling::GroupBlock;
use crate::placed::{OffloadError, Target};
use crate::ready::Widths;
use crate::source::Source;
use duet_graphs::Rows;
use duet_model::Model;
use duet_moe::{MoeShape, Times};
use duet_runtimes::{Buffer, GraphSource, Tensors};
use duet_types::{Nanos, Tokens};
use std::sync::Arc;
use std::time::Instant;

/// Measures a group of some experts of the first layer, and the CPU's kernels on all `threads` threads.
pub(super) fn measure(
    model: &Model,
    target: &Target<'_>,
    shape: &MoeShape,
    (group, tile, threads): (&GroupBlock, Tokens, usize),
) -> Result<Times, OffloadError> {
    // Each has an input of its own.
    let experts = group.block.inputs().len() as u64;
    let (few, many) = (tile, Tokens(tile.0 * 4));
    let [short, long] = [launch(target, group, few)?, launch(target, group, many)?];
    let slots = u64::from(many.0 - few.0) * experts;
    let slot = long.0.saturating_sub(short.0) / slots.max(1);
    let launch = short.0.saturating_sub(slot * u64::from(few.0) * experts);
    let (cpu_row, cpu_weights) = cpu_times::measure(model, shape, threads);
    // What does not grow with the slots is the launch's, reading weights included.
    Ok(Times { launch: Nanos(launch.max(1)), weights: Nanos::ZERO, slot: Nanos(slot), cpu_row, cpu_weights })
}

/// Where there are no experts on the device.
pub(super) const NOTHING: Times = Times {
    launch: Nanos::ZERO,
    weights: Nanos::ZERO,
    slot: Nanos::ZERO,
    cpu_row: Nanos::ZERO,
    cpu_weights: Nanos::ZERO,
};

/// The median of some runs.
fn launch(target: &Target<'_>, group: &GroupBlock, rows: Tokens) -> Result<Nanos, OffloadError> {
    let GroupBlock { block, ranges } = group;
    let source = GraphSource { block, rows: Rows::Static(rows), ranges: ranges.as_ref() };
    let mut graph = Source::of(target, &source)?.obtain(target)?;
    let widths = Widths::of(block);
    let values = |width: &usize| (0..rows.as_usize() * width).map(|i| (i % 17) as f32 * 0.1 - 0.8).collect::<Vec<_>>();
    let inputs: Vec<Arc<Buffer>> =
        widths.inputs.iter().map(|width| Arc::new(Buffer::from(values(width).as_slice()))).collect();
    let mut outputs: Vec<Buffer> = widths.outputs.iter().map(|width| Buffer::zeroed(rows.as_usize() * width)).collect();
    let mut took = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        outputs = graph.run(Tensors { inputs: inputs.clone(), outputs }, crate::patience::TRIAL_LIMIT)?;
        took.push(Nanos::from(start.elapsed()));
    }
    Ok(median(took))
}

fn median(mut times: Vec<Nanos>) -> Nanos {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

const RUNS: usize = 7;
