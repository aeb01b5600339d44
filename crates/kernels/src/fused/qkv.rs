//! QKV: norm, projection, bias, head norms, rope, and keys and values into the cache. Token-wise.

use super::buffers::SharedBuffers;
use super::{Buffers, Norm, RowNorm, are_disjoint, norm_rows, sync_fetching};
use crate::attention::{PAGE, PageMemory, PageWriter, Slot, TurnedBias};
use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::matmul::{Epilogue, FirstLines, Target, matmul};
use crate::packed::PackedMatrix;
use crate::quantize::SharedRows;
use crate::rows::{add, rms_norm_in_place, rope};
use std::ops::Range;

/// The weights of a layer's QKV kernel.
#[derive(Clone, Copy, Debug)]
pub struct QkvWeights<'a> {
    /// Before the projection.
    pub norm: RowNorm<'a>,
    /// Query heads, key heads, value heads, one below the other, and below them gates of what attention finds, where there are
    /// any. Query heads alone where another layer's keys and values are read. Heads are laid out for rope on halves.
    pub matrix: &'a PackedMatrix,
    /// Added to the projection.
    pub bias: Option<&'a [f32]>,
    /// Of queries and keys, before rope.
    pub norms: HeadNorms<'a>,
    /// Query heads.
    pub heads: usize,
    /// Key heads, and value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// Which of a row's angles this layer turns by: a range within [`super::BufferShape::angles`].
    pub angles: (usize, usize),
    /// What of `bias` is kept apart from keys of eight bits.
    pub key_bias: Option<TurnedBias<'a>>,
    /// Whose keys and values the layer reads.
    pub cache: CacheOf,
}

/// Whose keys and values a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOf {
    /// Its own, which it writes.
    Itself,
    /// Those that an earlier layer wrote: it has none (Gemma 4).
    AnotherLayer,
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug)]
pub enum HeadNorms<'a> {
    /// None.
    None,
    /// Of each head for itself.
    Heads {
        /// Of query heads.
        query: Norm<'a>,
        /// Of key heads.
        key: Norm<'a>,
        /// Of value heads, if they have any (Gemma 4).
        value: Option<Norm<'a>>,
    },
    /// Of all query heads together, and of all key heads together (OLMoE).
    Widths {
        /// Of the queries.
        query: Norm<'a>,
        /// Of the keys.
        key: Norm<'a>,
    },
}

/// The pages of one sequence that some rows are written to.
#[derive(Debug)]
pub struct KvTail<'a> {
    /// Position of the first page's first slot.
    pub first: usize,
    /// The pages, in order.
    pub pages: Vec<&'a mut PageMemory>,
}

/// Where each row's key and value go.
#[derive(Clone, Copy, Debug)]
pub struct KvDestination {
    /// Which tail.
    pub tail: usize,
    /// Where in it.
    pub position: usize,
    /// Which position of its sequence: another one in the page of a draft tree.
    pub turned_by: usize,
}

/// Runs the kernel on `rows` of the buffers; `destinations` has one entry for each of them.
///
/// # Panics
/// If a shape does not fit, a destination does not exist, or two rows have the same destination.
#[expect(clippy::too_many_arguments, reason = "what a kernel reads and writes, each once")]
pub fn qkv(
    isa: Isa,
    crew: &dyn Crew,
    weights: &QkvWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
    layer: usize,
    tails: &mut [KvTail<'_>],
    destinations: &[KvDestination],
) {
    let hidden = buffers.shape().hidden;
    let tails = writers(tails);
    let (shared, quantized, _) = buffers.share(hidden, 0);
    let quantized = quantized.with_rows(rows.len());
    let finish = Finish::new(isa, weights, shared, rows, layer, &tails, destinations);
    let call = Call { finish, quantized };
    crew.run(&|worker| call.run(&worker));
}

/// The second half of the kernel, for rows whose projection, with its bias, is in the buffers already: head norms, rope,
/// and keys and values into the cache.
///
/// # Panics
/// As [`qkv`].
#[expect(clippy::too_many_arguments, reason = "what a kernel reads and writes, each once")]
pub fn keys_and_values(
    isa: Isa,
    crew: &dyn Crew,
    weights: &QkvWeights<'_>,
    buffers: &mut Buffers,
    rows: Range<usize>,
    layer: usize,
    tails: &mut [KvTail<'_>],
    destinations: &[KvDestination],
) {
    let tails = writers(tails);
    let (shared, _, _) = buffers.share(0, 0);
    let projected = QkvWeights { bias: None, ..*weights };
    let finish = Finish::new(isa, &projected, shared, rows, layer, &tails, destinations);
    crew.run(&|worker| finish.run(&worker));
}

/// Tails for a crew to write, each with the position of its first slot.
pub(super) fn writers<'a>(tails: &'a mut [KvTail<'_>]) -> Vec<(usize, Vec<PageWriter<'a>>)> {
    tails.iter_mut().map(|tail| (tail.first, tail.pages.iter_mut().map(|page| page.writer()).collect())).collect()
}

struct Call<'a> {
    finish: Finish<'a>,
    quantized: SharedRows<'a>,
}

impl Call<'_> {
    fn run(&self, worker: &Worker<'_>) {
        let Finish { isa, weights, shared, rows, .. } = &self.finish;
        let from = |row| rows.start + row;
        // SAFETY: the kernel has borrowed the buffers alone; a sync follows.
        unsafe {
            norm_rows(*isa, weights.norm, &shared.residual, from, &shared.normed, &self.quantized, worker);
        }
        sync_fetching(worker, Some(&mut FirstLines::of(weights.matrix, worker)));
        let out = Target { out: shared.qkv.values, first_row: rows.start, stride: shared.qkv.stride };
        let out = Epilogue::Store(out);
        // SAFETY: each worker calls once, between syncs; the kernel has borrowed the buffers alone.
        unsafe { matmul(*isa, weights.matrix, &self.quantized, rows.len(), &out, worker) };
        worker.sync();
        self.finish.run(worker);
    }
}

/// What comes after the projection.
struct Finish<'a> {
    isa: Isa,
    weights: &'a QkvWeights<'a>,
    shared: SharedBuffers<'a>,
    rows: Range<usize>,
    layer: usize,
    tails: &'a [(usize, Vec<PageWriter<'a>>)],
    destinations: &'a [KvDestination],
}

impl<'a> Finish<'a> {
    /// Checks what the writes to the cache rely on.
    fn new(
        isa: Isa,
        weights: &'a QkvWeights<'a>,
        shared: SharedBuffers<'a>,
        rows: Range<usize>,
        layer: usize,
        tails: &'a [(usize, Vec<PageWriter<'a>>)],
        destinations: &'a [KvDestination],
    ) -> Self {
        assert!(rows.end * shared.qkv.stride <= shared.qkv.values.len() && destinations.len() == rows.len());
        let of_cache = if weights.cache == CacheOf::Itself { 2 * weights.kv_heads } else { 0 };
        let projected = (weights.heads + of_cache) * weights.head_dim;
        assert!(projected <= shared.qkv.columns && weights.heads.is_multiple_of(weights.kv_heads));
        let places = destinations.iter().map(|to| (to.tail, to.position, 0)..(to.tail, to.position, 1));
        assert!(are_disjoint(places), "two rows at one position");
        Self { isa, weights, shared, rows, layer, tails, destinations }
    }

    fn run(&self, worker: &Worker<'_>) {
        if let HeadNorms::Widths { query, key } = self.weights.norms {
            self.norm_widths([query, key], worker);
            worker.sync();
        }
        // Neighbouring positions of a head share lines of a page: a worker takes them together.
        for item in worker.share(self.kv_heads() * self.rows.len()) {
            self.finish_head(item % self.rows.len(), item / self.rows.len());
        }
    }

    /// Bias and norm of whole queries and whole keys.
    fn norm_widths(&self, norms: [Norm<'_>; 2], worker: &Worker<'_>) {
        let (dim, heads) = (self.head_dim(), self.weights.heads);
        let columns = [0..heads * dim, heads * dim..(heads + self.kv_heads()) * dim];
        for item in worker.share(2 * self.rows.len()) {
            let (row, which) = (item / 2, item % 2);
            let start = (self.rows.start + row) * self.shared.qkv.stride;
            let columns = columns[which].clone();
            // SAFETY: the row's queries, or its keys, are this item's; syncs surround this.
            let part = unsafe { self.shared.qkv.values.part_mut(start + columns.start..start + columns.end) };
            if let Some(bias) = self.weights.bias {
                add(self.isa, part, &bias[columns]);
            }
            rms_norm_in_place(self.isa, part, norms[which].weight, norms[which].epsilon);
        }
    }

    fn head_dim(&self) -> usize {
        self.weights.head_dim
    }

    fn kv_heads(&self) -> usize {
        self.weights.kv_heads
    }

    /// The query heads that share key head `kv_head`, their key and their value, of one row.
    fn finish_head(&self, row: usize, kv_head: usize) {
        let (dim, heads, kv_heads) = (self.head_dim(), self.weights.heads, self.kv_heads());
        let group = heads / kv_heads;
        let (bias, query_norm, key_norm, value_norm) = match self.weights.norms {
            HeadNorms::None => (self.weights.bias, None, None, None),
            HeadNorms::Heads { query, key, value } => (self.weights.bias, Some(query), Some(key), value),
            // Done already.
            HeadNorms::Widths { .. } => (None, None, None, None),
        };
        for head in kv_head * group..(kv_head + 1) * group {
            self.finish_part(row, head, bias, query_norm);
        }
        if self.weights.cache == CacheOf::AnotherLayer {
            return;
        }
        let key = self.finish_part(row, heads + kv_head, bias, key_norm);
        let value = self.part(row, heads + kv_heads + kv_head);
        if let Some(bias) = self.weights.bias {
            add(self.isa, value, &bias[(heads + kv_heads + kv_head) * dim..][..dim]);
        }
        if let Some(norm) = value_norm {
            rms_norm_in_place(self.isa, value, norm.weight, norm.epsilon);
        }
        let to = self.destinations[row];
        let (first, pages) = &self.tails[to.tail];
        let offset = to.position - first;
        let at = Slot { position: offset % PAGE, layer: self.layer, kv_head };
        if let Some(bias) = self.weights.key_bias.filter(|_| pages[offset / PAGE].format().keeps_key_bias_apart()) {
            bias.take_from(key, kv_head, to.turned_by);
        }
        // SAFETY: rows have different destinations (checked in `new`), and (row, head) is this worker's item.
        unsafe { pages[offset / PAGE].write(self.isa, at, key, value) };
    }

    /// Bias, norm and rope of one query or key head.
    #[expect(clippy::mut_from_ref, reason = "a part of shared memory that is this worker's")]
    fn finish_part(&self, row: usize, head: usize, bias: Option<&[f32]>, norm: Option<Norm<'_>>) -> &mut [f32] {
        let dim = self.head_dim();
        let part = self.part(row, head);
        if let Some(bias) = bias {
            add(self.isa, part, &bias[head * dim..][..dim]);
        }
        if let Some(norm) = norm {
            rms_norm_in_place(self.isa, part, norm.weight, norm.epsilon);
        }
        let (from, to) = self.weights.angles;
        let angles = self.shared.cosines.row(self.rows.start + row);
        let angles = angles.start + from..angles.start + to;
        // SAFETY: nobody writes angles during a kernel.
        let (cosines, sines) =
            unsafe { (self.shared.cosines.values.part(angles.clone()), self.shared.sines.values.part(angles)) };
        rope(self.isa, &mut part[..2 * cosines.len()], cosines, sines);
        part
    }

    #[expect(clippy::mut_from_ref, reason = "a part of shared memory that is this worker's")]
    fn part(&self, row: usize, head: usize) -> &mut [f32] {
        let dim = self.head_dim();
        let start = (self.rows.start + row) * self.shared.qkv.stride + head * dim;
        // SAFETY: only called for heads of this worker's item, one after the other.
        unsafe { self.shared.qkv.values.part_mut(start..start + dim) }
    }
}
