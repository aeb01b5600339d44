//! Attention as static chunk graphs: a chunk's rows over keys and values of a fixed length, one graph for each of a few
//! lengths and all layers. (NPUMoE §3.2)
//!
//! The CPU makes the mask and pads queries, keys and values; what it and the graphs take is kept apart from the rest, since
//! the paper's attention is slower that way than on the CPU (+27.6 %, §5.3).

use crate::placed::{OffloadError, Target};
use crate::ready::ReadyGraph;
use duet_graphs::ChunkAttention;
use duet_model::Model;
use duet_model::forward::{AttentionStats, AttentionWise, ChunkRows, NotRun};
use duet_runtimes::{Buffer, Tensors};
use duet_types::{Nanos, Tokens};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The graphs of a model's attention.
#[derive(Debug)]
pub(super) struct ChunkGraphs {
    /// Shortest first.
    graphs: Vec<(ChunkAttention, Mutex<ReadyGraph>)>,
    stats: Mutex<AttentionStats>,
}

impl ChunkGraphs {
    /// Graphs of `chunk` rows over one chunk, two, four and so on, up to the model's context or [`CONTEXT_MAX`].
    pub(super) fn ready(target: &Target<'_>, model: &Model, chunk: Tokens) -> Result<Self, OffloadError> {
        let longest = model.config().context.min(CONTEXT_MAX).max(chunk);
        let lengths = std::iter::successors(Some(chunk), |length| Some(Tokens(length.0 * 2)));
        let graph = |context| {
            let shape = shape(model, chunk, context);
            let graph = target.device.compile_graph(&target.device.emit_attention(&shape)?)?;
            let tried = ReadyGraph::tried_on(graph, tensors(&shape), chunk)?;
            Ok((shape, Mutex::new(tried)))
        };
        let graphs = lengths.take_while(|length| *length <= longest).map(graph);
        Ok(Self { graphs: graphs.collect::<Result<_, OffloadError>>()?, stats: Mutex::default() })
    }

    /// What they did.
    pub(super) fn stats(&self) -> AttentionStats {
        *lock(&self.stats)
    }

    fn graph(&self, rows: Tokens, end: Tokens) -> Option<&(ChunkAttention, Mutex<ReadyGraph>)> {
        self.graphs.iter().find(|(shape, _)| shape.context >= end && shape.rows >= rows)
    }
}

impl AttentionWise for ChunkGraphs {
    fn takes(&self, rows: Tokens, end: Tokens) -> bool {
        rows >= ROWS_MIN && self.graph(rows, end).is_some()
    }

    fn attend(&self, _layer: usize, chunk: &ChunkRows<'_>, attended: &mut [f32]) -> Result<(), NotRun> {
        let begun = Instant::now();
        let rows = Tokens((chunk.queries.len() / chunk.stride.max(1)) as u32);
        let too_long = || NotRun::Unsupported("the context is longer than any graph's".to_owned());
        let (shape, graph) = self.graph(rows, chunk.before + rows).ok_or_else(too_long)?;
        let tensors = filled(shape, chunk);
        let padded = Instant::now();
        let failed = |error: duet_runtimes::Error| NotRun::Failed(error.to_string());
        let mut graph = lock(graph);
        graph.start(tensors).map_err(failed)?;
        let results = graph.wait(shape.rows.as_usize()).map_err(failed)?;
        let found = results.first().filter(|found| found.len() >= attended.len());
        let found = found.ok_or_else(|| NotRun::Failed("it gave too little".to_owned()))?;
        attended.copy_from_slice(&found[..attended.len()]);
        let mut stats = lock(&self.stats);
        stats.launches += 1;
        stats.padding += Nanos::from(padded - begun);
        stats.running += Nanos::from(padded.elapsed());
        Ok(())
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

/// A chunk, padded to the graph's shape, and its mask.
fn filled(shape: &ChunkAttention, chunk: &ChunkRows<'_>) -> Tensors {
    let (rows, context, width) = (shape.rows.as_usize(), shape.context.as_usize(), shape.queries());
    let mut queries = Buffer::zeroed(rows * width);
    for (to, from) in queries.chunks_exact_mut(width).zip(chunk.queries.chunks_exact(chunk.stride)) {
        to.copy_from_slice(&from[..width]);
    }
    let [mut keys, mut values] = [(); 2].map(|()| Buffer::zeroed(context * shape.keys()));
    chunk.cache.read(&mut keys, &mut values);
    let mut mask = Buffer::zeroed(rows * context);
    shape.mask(chunk.before, &mut mask);
    let inputs = [queries, keys, values, mask].map(Arc::new).to_vec();
    Tensors { inputs, outputs: vec![Buffer::zeroed(rows * width)] }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fewer rows are padded to more than they are worth.
const ROWS_MIN: Tokens = Tokens(64);
/// The longest that keys and values are padded to: the paper's longest prompt.
const CONTEXT_MAX: Tokens = Tokens(4096);
