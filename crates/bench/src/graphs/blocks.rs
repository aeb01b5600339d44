//! Each kind of block in each shape: what compiling, exporting, taking up and running it takes, and how large it is.

use super::line::{BlockLine, Line, RunTime};
use super::random_weights::{ExpertShape, group};
use super::{GraphsError, Settings};
use crate::bed::{Bed, Runnable, timed};
use crate::load::Progress;
use crate::probe::rss_bytes;
use crate::samples::median;
use duet_graphs::{Block, Rows};
use duet_offload::{head_block, layer_blocks};
use duet_sim::Random;
use duet_types::{Nanos, Tokens};

/// A kind of block, and the rows that its graphs are compiled for.
struct Kind {
    name: &'static str,
    block: Block,
}

/// What a sample of making a graph ready is.
#[derive(Default)]
struct Ready {
    compile: Vec<f64>,
    export: Vec<f64>,
    import: Vec<f64>,
}

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    for Kind { name, block } in kinds(bed)? {
        let mut shapes: Vec<Rows> = STATIC.into_iter().map(|rows| Rows::Static(Tokens(rows))).collect();
        shapes.extend(bed.is_dynamic().then_some(Rows::Dynamic));
        for rows in shapes {
            progress(&format!("{name}, {}", shape_name(rows)));
            tell(Line::Block(line(bed, name, &block, rows, settings.samples)?));
        }
    }
    Ok(())
}

fn kinds(bed: &Bed) -> Result<Vec<Kind>, GraphsError> {
    let layer = layer_blocks(&bed.model, 0, bed.device.rules().weights)?;
    let blueprint = bed.model.blueprint();
    let experts = group(ExpertShape { hidden: blueprint.hidden, inner: EXPERT_INNER }, EXPERTS, &mut Random::new(1))?;
    Ok(vec![
        Kind { name: "qkv", block: layer.qkv },
        Kind { name: "feed-forward", block: layer.feed_forward },
        Kind { name: "head", block: head_block(&bed.model, bed.device.rules().weights)? },
        Kind { name: "experts-4", block: experts },
    ])
}

fn line(bed: &Bed, name: &str, block: &Block, rows: Rows, samples: usize) -> Result<BlockLine, GraphsError> {
    let emitted = bed.emit(block, rows)?;
    let blob = bed.compile_emitted(&emitted)?.export()?;
    let resident_bytes = resident_bytes(bed, &blob, block, rows)?;
    let mut ready = Ready::default();
    let mut graph = None;
    for _ in 0..samples.max(1) {
        let (compile, compiled) = timed(|| bed.compile_emitted(&emitted));
        let compiled = compiled?;
        let (export, blob) = timed(|| compiled.export());
        let blob = blob?;
        let (import, imported) = timed(|| bed.import(&blob));
        graph = Some(imported?);
        ready.compile.push(compile.as_millis_f64());
        ready.export.push(export.as_millis_f64());
        ready.import.push(import.as_millis_f64());
    }
    let mut graph = graph.ok_or(GraphsError::NoResult)?;
    let mut runs = Vec::new();
    for rows in run_rows(rows) {
        let mut runnable = Runnable::new(graph, block, rows);
        runs.push(run_time(&mut runnable, rows, samples)?);
        graph = runnable.into_graph();
    }
    let ms_per_token = runs.last().map(|run: &RunTime| run.ms / f64::from(run.rows));
    Ok(BlockLine {
        setting: format!("{name}, {}", shape_name(rows)),
        n: samples,
        compile_ms: median(ready.compile),
        export_ms: median(ready.export),
        load_ms: median(ready.import),
        ms_per_token,
        bytes: blob.len() as u64,
        resident_bytes,
        runs,
    })
}

/// One run in milliseconds, the median of several after one that warms up.
fn run_time(runnable: &mut Runnable, rows: Tokens, samples: usize) -> Result<RunTime, GraphsError> {
    runnable.run()?;
    let times = (0..samples * RUNS).map(|_| runnable.run().map(Nanos::as_millis_f64)).collect::<Result<_, _>>()?;
    Ok(RunTime { rows: rows.0, ms: median(times).ok_or(GraphsError::NoResult)? })
}

/// How much more memory is in use for each graph that was taken up and run once; absent where the system does not tell, or
/// where they found room in memory that others have left.
fn resident_bytes(bed: &Bed, blob: &[u8], block: &Block, rows: Rows) -> Result<Option<u64>, GraphsError> {
    let copies = (RESIDENT_BYTES / blob.len().max(1)).clamp(1, COPIES_MAX);
    let trial = run_rows(rows).first().copied().unwrap_or(Tokens(1));
    let Some(before) = rss_bytes() else { return Ok(None) };
    let mut loaded = Vec::with_capacity(copies);
    for _ in 0..copies {
        let mut runnable = Runnable::new(bed.import(blob)?, block, trial);
        runnable.run()?;
        loaded.push(runnable.into_graph());
    }
    let grown = rss_bytes().map_or(0, |after| after.saturating_sub(before));
    drop(loaded);
    Ok(Some(grown / copies as u64).filter(|&bytes| bytes > 0))
}

/// Rows that a graph is run on.
fn run_rows(rows: Rows) -> Vec<Tokens> {
    match rows {
        Rows::Static(rows) => vec![rows],
        Rows::Dynamic => [1, 32, 256].map(Tokens).into(),
    }
}

fn shape_name(rows: Rows) -> String {
    match rows {
        Rows::Static(rows) => format!("{rows} rows"),
        Rows::Dynamic => "any rows".to_owned(),
    }
}

/// Rows of static graphs: two that decode, one that reads prompts.
const STATIC: [u32; 3] = [32, 64, 256];
/// Experts of a group, and how wide they are: a small mixture's.
const EXPERTS: usize = 4;
const EXPERT_INNER: usize = 768;
/// Runs for each sample.
const RUNS: usize = 5;
/// As many copies of a graph are loaded as fill this, so that memory which others have left does not hide them.
const RESIDENT_BYTES: usize = 48 << 20;
const COPIES_MAX: usize = 24;
