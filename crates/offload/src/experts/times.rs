//! How long experts take on a device and on the CPU, measured when they are placed: whether a launch is worth it follows
//! from that. (NPUMoE §4.3)
//!
//! A launch and its slots are told apart by the same group at two capacities; rows and weights on the CPU by a single row,
//! which reads all that it goes to, and a chunk.

use super::filling::GroupBlock;
use crate::placed::{OffloadError, Target};
use crate::ready::Widths;
use crate::source::Source;
use duet_graphs::Rows;
use duet_kernels::crew::Solo;
use duet_model::Model;
use duet_model::forward::{Activations, Node, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_moe::{MoeShape, Times};
use duet_runtimes::{Buffer, GraphSource, Tensors};
use duet_types::{Nanos, TokenId, Tokens};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// Measures a group of some experts of the first layer, and the CPU's kernels by themselves on one of `threads` threads.
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
    let (cpu_row, cpu_weights) = cpu(model, shape, threads.max(1));
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

/// A row of an expert, and its weights, on `threads` threads. Who all rows go to is taken off by its size.
fn cpu(model: &Model, shape: &MoeShape, threads: usize) -> (Nanos, Nanos) {
    let Some(work) = model.work().experts else { return (Nanos::ZERO, Nanos::ZERO) };
    let shared = work.shared as f64 / work.expert.max(1) as f64;
    let chosen = f64::from(shape.chosen);
    let rows = shape.chunk.min(model.config().context).as_usize().max(2);
    let (one, _) = experts_time(model, 1);
    let (all, touched) = experts_time(model, rows);
    // one = (chosen + shared) × (row + weights); all = rows × (chosen + shared) × row + (touched + shared) × weights.
    let each = one.0 as f64 / (chosen + shared);
    let (products, read) = (rows as f64 * (chosen + shared), touched as f64 + shared);
    let row = ((all.0 as f64 - read * each) / (products - read).max(1.0)).clamp(1.0, each.max(1.0));
    let nanos = |time: f64| Nanos((time / threads as f64).max(1.0) as u64);
    (nanos(row), nanos(each - row))
}

/// The experts of the first layer on some rows, and how many of them these go to.
fn experts_time(model: &Model, rows: usize) -> (Nanos, usize) {
    let vocabulary = model.config().vocabulary as u32;
    let tokens = (0..rows as u32).map(|row| TokenId(row * 37 % vocabulary)).collect();
    let table = model.kv_pool(KvFormat::F16, Tokens(rows as u32)).table();
    let Ok(mut pass) = Pass::new(model, Activations::new(model, rows), vec![Segment::new(table, tokens)]) else {
        return (Nanos::ZERO, 0);
    };
    for node in [Node::Embed, Node::Qkv { layer: 0 }, Node::Attention { layer: 0 }, Node::Route { layer: 0 }] {
        model.run_node(&mut pass, node, 0..rows, &Solo);
    }
    let took = (0..RUNS).map(|_| {
        let start = Instant::now();
        model.run_node(&mut pass, Node::Experts { layer: 0, launch: 0 }, 0..rows, &Solo);
        Nanos::from(start.elapsed())
    });
    let took = median(took.collect());
    let chosen: BTreeSet<u32> =
        (0..rows).filter_map(|row| pass.routes(row)).flat_map(|routes| routes.experts.to_vec()).collect();
    (took, chosen.len())
}

fn median(mut times: Vec<Nanos>) -> Nanos {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

const RUNS: usize = 7;
