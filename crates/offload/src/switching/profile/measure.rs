//! Measuring what graphs cost: a few layers are loaded and run in every shape, and the others are taken to be like them.
//!
//! Shapes take turns, so that a machine that changes its speed changes it for all. Medians count; of loads, which are short,
//! the least, since whatever else the machine does only adds to them. A shape that has had its time is measured no more: a
//! slow device is measured less often, not for longer.

use super::GraphProfileError;
use super::compiling::compile_times;
use super::costs::{GraphCosts, LoadTime, ShapeCost};
use crate::switching::block_graphs::BlockGraphs;
use crate::switching::error::SwitchingError;
use crate::switching::layer_shelf::LayerShelf;
use duet_kernels::crew::Solo;
use duet_model::Model;
use duet_model::forward::{Activations, Node, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_scheduler::progressive::PassTime;
use duet_types::{Nanos, TokenId, Tokens};
use std::time::Instant;

/// Which shapes are measured, and how much time that may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measuring {
    /// Rows.
    pub rows: Vec<Tokens>,
    /// Samples of each shape at most, at least one.
    pub samples: usize,
    /// A shape that took longer gets no further sample.
    pub time: Nanos,
}

/// Rows that are measured unless others are asked for.
pub const SHAPES: [Tokens; 6] = [Tokens(16), Tokens(32), Tokens(64), Tokens(128), Tokens(256), Tokens(512)];

/// What was measured of a shape so far.
#[derive(Debug, Default)]
struct Samples {
    spent: Nanos,
    /// Of one layer.
    load_one: Vec<Nanos>,
    /// Of all layers of the shelf.
    load_all: Vec<Nanos>,
    /// Of all layers, after no position.
    near: Vec<Nanos>,
    /// The same after [`Run::far`].
    far: Vec<Nanos>,
}

/// Passes of the shelf's layers.
struct Run<'a> {
    model: &'a Model,
    rows: Tokens,
    /// A long context.
    far: Tokens,
}

impl Default for Measuring {
    fn default() -> Self {
        Self { rows: SHAPES.to_vec(), samples: 3, time: Nanos(1_500_000_000) }
    }
}

impl Measuring {
    /// Layers that are compiled, loaded and run: more than one, to tell what a layer costs from what a load does.
    pub const LAYERS: usize = 3;

    /// Ascending, each once, and no more than fit a context.
    pub(super) fn rows_within(&self, context: Tokens) -> Vec<Tokens> {
        let mut rows: Vec<Tokens> =
            self.rows.iter().copied().filter(|&rows| rows > Tokens::ZERO && rows <= context).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

impl GraphCosts {
    /// Loads and runs the shelf's layers in every shape that is to be measured and compiles two of them again. The shelf
    /// has these shapes.
    ///
    /// # Errors
    /// If the device fails, or a graph has gone from the cache.
    pub fn measure(model: &Model, shelf: &LayerShelf, measuring: &Measuring) -> Result<Self, GraphProfileError> {
        let rows = measuring.rows_within(model.config().context);
        let compiled = shelf.layers().min(COMPILED);
        let compile = compile_times(model, shelf.placement(), compiled, &rows).map_err(SwitchingError::from)?;
        let mut all: Vec<Samples> = rows.iter().map(|_| Samples::default()).collect();
        for _ in 0..measuring.samples.max(1) {
            for (&rows, samples) in rows.iter().zip(&mut all) {
                if samples.spent < measuring.time {
                    samples.take(&Run::new(model, rows), shelf)?;
                }
            }
        }
        let shapes = rows.iter().zip(all).zip(compile).map(|((&rows, samples), compile)| {
            let run = Run::new(model, rows);
            samples.cost(&run, shelf, median(compile))
        });
        Ok(Self { layers: model.config().layers, measured: shelf.layers(), shapes: shapes.collect() })
    }
}

impl Samples {
    /// One sample of everything.
    fn take(&mut self, run: &Run<'_>, shelf: &LayerShelf) -> Result<(), SwitchingError> {
        let start = Instant::now();
        let (one, _) = timed(|| shelf.load(0..shelf.layers().min(1), run.rows))?;
        let (all, graphs) = timed(|| shelf.load(0..shelf.layers(), run.rows))?;
        // The first run of a graph is its slowest: devices prepare weights in it.
        let first = run.time(&graphs, Tokens::ZERO)?;
        let near = if first < SLOW { run.time(&graphs, Tokens::ZERO)? } else { first };
        self.far.push(run.time(&graphs, run.far)?);
        self.near.push(near);
        self.load_one.push(one);
        self.load_all.push(all);
        self.spent += start.elapsed().into();
        Ok(())
    }

    fn cost(self, run: &Run<'_>, shelf: &LayerShelf, compile: Nanos) -> ShapeCost {
        let layers = (shelf.layers() as u64).max(1);
        let samples = self.near.len();
        let (one, all, near) = (least(&self.load_one), least(&self.load_all), median(self.near));
        let longer = median(self.far).saturating_sub(near);
        let per_position = longer.0 / layers / u64::from(run.far.0.max(1));
        ShapeCost {
            rows: run.rows,
            pass: PassTime { empty: Nanos(near.0 / layers), per_position: Nanos(per_position) },
            load: LoadTime::of(one, all, layers),
            bytes: duet_types::Bytes(shelf.bytes(0..shelf.layers(), run.rows).0 / layers),
            compile,
            samples,
        }
    }
}

impl LoadTime {
    /// Of what loading one layer and loading several took. Where one seemed to take as long as all, something else had
    /// the machine: then nothing is known of what loads have in common, and each layer takes its share.
    pub(super) fn of(one: Nanos, all: Nanos, layers: u64) -> Self {
        if layers < 2 {
            return Self { fixed: Nanos::ZERO, per_layer: one };
        }
        if one >= all {
            return Self { fixed: Nanos::ZERO, per_layer: Nanos(all.0 / layers) };
        }
        let per_layer = Nanos(((all.0 - one.0) / (layers - 1)).min(all.0 / layers));
        Self { fixed: Nanos(all.0 - per_layer.0 * layers), per_layer }
    }
}

impl<'a> Run<'a> {
    fn new(model: &'a Model, rows: Tokens) -> Self {
        Self { model, rows, far: FAR.min(model.config().context.saturating_sub(rows)) }
    }

    /// A pass of the layers after some positions, on one core where it is not the device's. What is in the context does
    /// not matter to time, so it is zeros.
    fn time(&self, graphs: &BlockGraphs, context: Tokens) -> Result<Nanos, SwitchingError> {
        let Self { model, rows, .. } = *self;
        let pool = model.kv_pool(KvFormat::F16, Tokens(context.0 + rows.0));
        let table = pool.read_table(context, &mut std::io::repeat(0)).map_err(SwitchingError::Kv)?;
        let vocabulary = model.config().vocabulary.max(1) as u32;
        let tokens = (0..rows.0).map(|index| TokenId(index * 7919 % vocabulary)).collect();
        let activations = Activations::new(model, rows.as_usize());
        let mut pass =
            Pass::new(model, activations, vec![Segment::new(table, tokens)]).map_err(|refused| refused.error)?;
        let all = 0..rows.as_usize();
        model.run_node(&mut pass, Node::Embed, all.clone(), &Solo);
        let start = Instant::now();
        for layer in graphs.layers() {
            for node in [Node::Qkv { layer }, Node::Attention { layer }, Node::Ffn { layer }] {
                model.run_node_on(graphs, &mut pass, node, all.clone(), &Solo)?;
            }
        }
        Ok(start.elapsed().into())
    }
}

/// How long something takes, and what comes of it.
fn timed<T>(work: impl FnOnce() -> Result<T, SwitchingError>) -> Result<(Nanos, T), SwitchingError> {
    let start = Instant::now();
    let made = work()?;
    Ok((start.elapsed().into(), made))
}

/// The middle; the lower one of an even number, and zero of none.
fn median(mut times: Vec<Nanos>) -> Nanos {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The least, and zero of none.
fn least(times: &[Nanos]) -> Nanos {
    times.iter().copied().min().unwrap_or_default()
}

/// Where the longer passes are.
const FAR: Tokens = Tokens(1024);
/// Layers that are compiled again.
const COMPILED: usize = 2;
/// A pass that takes so long is not run again to warm up.
const SLOW: Nanos = Nanos(500_000_000);
