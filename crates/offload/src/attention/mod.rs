//! Attention as static chunk graphs: a chunk's rows over keys and values of a fixed length, one graph for each of a few
//! lengths and all layers. (NPUMoE §3.2)
//!
//! Keys and values stay where the graphs read them (`mirror`): in the host's memory, page by page as the runtime takes it
//! without copying, so that a chunk adds its own positions and no more. The mask is made once for a chunk, and the memory
//! of queries and results is used again. Variables of the graph (OpenVINO's `ReadValue` and `Assign`) would keep the cache
//! in a device's own memory, which is better where that is not the host's: they grow with the graph's shape only, though,
//! belong to one inference request each, and cannot be cut back where a pass is given up, so that forks and drafts would
//! begin from nothing.
//!
//! What all this takes is kept apart from the rest, since the paper's attention is slower on the device than on the CPU
//! (+27.6 %, §5.3): the engine measures whether it pays.
//!
//! Invariant: a chunk's result is the same, to the bit, whatever was kept before it.

mod mirror;

use crate::placed::OffloadError;
use crate::ready::ReadyGraph;
use duet_graphs::ChunkAttention;
use duet_model::Model;
use duet_model::arch::Extra;
use duet_model::forward::{AttentionStats, AttentionWise, CacheRows, ChunkRows, ChunksTaken, NotRun};
use duet_runtimes::{Buffer, GraphDevice, Tensors};
use duet_types::{Bytes, Nanos, Tokens};
use mirror::Mirrors;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A model's attention on a device.
#[derive(Debug)]
pub struct PlacedAttention {
    /// Shortest first; all of as many rows.
    shapes: Vec<ChunkAttention>,
    /// In the order of the shapes, and what they read and write. The device's lane runs one kernel at a time.
    graphs: Mutex<(Vec<ReadyGraph>, Memory)>,
    stats: Mutex<AttentionStats>,
}

/// What is kept from launch to launch.
#[derive(Debug, Default)]
struct Memory {
    mirrors: Mirrors,
    mask: Option<Mask>,
    /// Of a chunk, padded.
    queries: Option<Arc<Buffer>>,
    found: Option<Buffer>,
}

/// What the rows of a chunk see, the same in all layers.
#[derive(Debug)]
struct Mask {
    context: Tokens,
    before: Tokens,
    values: Arc<Buffer>,
}

impl PlacedAttention {
    /// Graphs of `chunk` rows over one chunk, two, four and so on, up to the model's context or 4,096 positions.
    ///
    /// # Errors
    /// If all layers attend within windows, or the device takes no attention.
    pub fn ready_on(model: &Model, device: &dyn GraphDevice, chunk: Tokens) -> Result<Self, OffloadError> {
        Self::suits(model)?;
        let longest = model.config().context.min(CONTEXT_MAX).max(chunk);
        let lengths = std::iter::successors(Some(chunk), |length| Some(Tokens(length.0 * 2)));
        let lengths = lengths.take_while(|length| *length <= longest);
        let shapes: Vec<_> = lengths.map(|context| shape(model, chunk, context)).collect();
        let graph = |shape: &ChunkAttention| {
            let graph = device.compile_graph(&device.emit_attention(shape)?)?;
            ReadyGraph::tried_on(graph, tensors(shape), chunk)
        };
        let graphs = shapes.iter().map(graph).collect::<Result<_, _>>()?;
        Ok(Self { shapes, graphs: Mutex::new((graphs, Memory::default())), stats: Mutex::default() })
    }

    /// Whether there is something for a device to do. Layers with a window are the crew's.
    ///
    /// # Errors
    /// If all of them have one, or attention has what devices do not know.
    pub fn suits(model: &Model) -> Result<(), OffloadError> {
        if model.blueprint().has(Extra::Sinks) {
            return Err(OffloadError::Sinks);
        }
        if model.blueprint().recurrent.is_some() {
            return Err(OffloadError::Recurrent);
        }
        if model.blueprint().wide.is_some() {
            return Err(OffloadError::Heads);
        }
        let windowed = model.blueprint().layers.iter().all(|layer| layer.window.is_some());
        if windowed { Err(OffloadError::Windows) } else { Ok(()) }
    }

    /// The shortest graph for so many rows that end at this position.
    fn fitting(&self, rows: Tokens, end: Tokens) -> Option<usize> {
        self.shapes.iter().position(|shape| shape.context >= end && shape.rows >= rows)
    }

    fn count(&self, (begun, padded): (Instant, Instant), read: Tokens, kept: Bytes) {
        let mut stats = lock(&self.stats);
        stats.launches += 1;
        stats.read += u64::from(read.0);
        stats.padding += Nanos::from(padded - begun);
        stats.running += Nanos::from(padded.elapsed());
        stats.kept = kept;
    }
}

impl AttentionWise for PlacedAttention {
    fn chunks(&self) -> ChunksTaken {
        let of = |field: fn(&ChunkAttention) -> Tokens| self.shapes.last().map_or(Tokens::ZERO, field);
        let rows_max = of(|shape| shape.rows);
        ChunksTaken { rows_min: ROWS_MIN.min(rows_max), rows_max, context_max: of(|shape| shape.context) }
    }

    fn attend(&self, layer: usize, chunk: &ChunkRows<'_>, attended: &mut [f32]) -> Result<(), NotRun> {
        let begun = Instant::now();
        let rows = Tokens((chunk.queries.len() / chunk.stride.max(1)) as u32);
        let too_long = || NotRun::Unsupported("the context is longer than any graph's".to_owned());
        let fitting = self.fitting(rows, chunk.before + rows).ok_or_else(too_long)?;
        let (shape, mut guard) = (&self.shapes[fitting], lock(&self.graphs));
        let (graphs, memory) = &mut *guard;
        let (tensors, read) = memory.filled(shape, layer, chunk);
        let padded = Instant::now();
        let failed = |error: duet_runtimes::Error| NotRun::Failed(error.to_string());
        graphs[fitting].start(tensors).map_err(failed)?;
        let results = graphs[fitting].wait(shape.rows.as_usize()).map_err(failed)?;
        let found = results.into_iter().next().filter(|found| found.len() >= attended.len());
        let found = found.ok_or_else(|| NotRun::Failed("it gave too little".to_owned()))?;
        attended.copy_from_slice(&found[..attended.len()]);
        memory.found = Some(found);
        self.count((begun, padded), read, memory.mirrors.bytes());
        Ok(())
    }

    fn outgrown(&self, cache: &CacheRows<'_>) {
        let mirrors = &mut lock(&self.graphs).1.mirrors;
        mirrors.forget(cache.lineage());
        lock(&self.stats).kept = mirrors.bytes();
    }

    fn stats(&self) -> AttentionStats {
        *lock(&self.stats)
    }
}

impl Memory {
    /// A chunk, padded to the graph's shape, and how many positions were read out of the cache for it.
    fn filled(&mut self, shape: &ChunkAttention, layer: usize, chunk: &ChunkRows<'_>) -> (Tensors, Tokens) {
        let ([keys, values], read) = self.mirrors.sides(shape.context, layer, &chunk.cache);
        let found = self.found.take().unwrap_or_else(|| Buffer::zeroed(shape.rows.as_usize() * shape.queries()));
        let inputs = vec![self.queries(shape, chunk), keys, values, self.mask(shape, chunk.before)];
        (Tensors { inputs, outputs: vec![found] }, read)
    }

    /// Queries side by side. What a row finds depends on that row alone: those of padding may be anybody's.
    fn queries(&mut self, shape: &ChunkAttention, chunk: &ChunkRows<'_>) -> Arc<Buffer> {
        let width = shape.queries();
        let queries = self.queries.get_or_insert_default();
        if Arc::get_mut(queries).is_none_or(|queries| queries.len() != shape.rows.as_usize() * width) {
            *queries = Arc::new(Buffer::zeroed(shape.rows.as_usize() * width));
        }
        if let Some(queries) = Arc::get_mut(queries) {
            for (to, from) in queries.chunks_exact_mut(width).zip(chunk.queries.chunks_exact(chunk.stride)) {
                to.copy_from_slice(&from[..width]);
            }
        }
        Arc::clone(queries)
    }

    /// The mask of rows behind `before` positions: that of the layer before, of the same chunk.
    fn mask(&mut self, shape: &ChunkAttention, before: Tokens) -> Arc<Buffer> {
        let is_made = |mask: &Mask| (mask.context, mask.before) == (shape.context, before);
        if !self.mask.as_ref().is_some_and(is_made) {
            let mut values = Buffer::zeroed(shape.rows.as_usize() * shape.context.as_usize());
            shape.mask(before, &mut values);
            self.mask = Some(Mask { context: shape.context, before, values: Arc::new(values) });
        }
        self.mask.as_ref().map(|mask| Arc::clone(&mask.values)).unwrap_or_default()
    }
}

fn shape(model: &Model, rows: Tokens, context: Tokens) -> ChunkAttention {
    let blueprint = model.blueprint();
    ChunkAttention {
        heads: blueprint.heads,
        kv_heads: blueprint.kv_heads,
        head_dim: blueprint.head_dim,
        scale: blueprint.attention_scale,
        rows,
        context,
    }
}

/// Zeros, with which a graph can be tried.
fn tensors(shape: &ChunkAttention) -> Tensors {
    let (rows, context) = (shape.rows.as_usize(), shape.context.as_usize());
    let inputs = [rows * shape.queries(), context * shape.keys(), context * shape.keys(), rows * context];
    let inputs = inputs.into_iter().map(|len| Arc::new(Buffer::zeroed(len)));
    Tensors { inputs: inputs.collect(), outputs: vec![Buffer::zeroed(rows * shape.queries())] }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fewer rows are padded to more than they are worth.
const ROWS_MIN: Tokens = Tokens(64);
/// The longest that keys and values are padded to: the paper's longest prompt.
const CONTEXT_MAX: Tokens = Tokens(4096);
