//! Attention of a chunk on another device than the crew's cores. (NPUMoE §3.2)
//!
//! The cache stays here, in pages of its own form; a device with static shapes reads keys and values as plain floats, up
//! to the chunk's end. It may keep those that it has read, under the name that the cache has then ([`CacheRows::lineage`]),
//! and read only what is new. It takes the rows of one sequence that see all positions before them, which is how prompts
//! are read; what branches, has a window or sinks is the crew's.

use super::pass::Pass;
use super::token_wise::NotRun;
use crate::kv::{KvTable, LineageId, PAGE_TOKENS, PageOfDevice};
use crate::load::Model;
use duet_kernels::attention::{KvLayout, TurnedBias};
use duet_kernels::memory::Region;
use duet_types::{Bytes, Nanos, Tokens};
use std::fmt::Debug;
use std::ops::AddAssign;

/// Runs the attention of chunks.
pub trait AttentionWise: Debug + Send + Sync {
    /// The chunks that it takes.
    fn chunks(&self) -> ChunksTaken;

    /// From a chunk to `[rows][heads × dimensions]`.
    ///
    /// # Errors
    /// [`NotRun`].
    fn attend(&self, layer: usize, chunk: &ChunkRows<'_>, attended: &mut [f32]) -> Result<(), NotRun>;

    /// A sequence has become too long for it: what is kept of it is of no use any more.
    fn outgrown(&self, _cache: &CacheRows<'_>) {}

    /// What it did.
    fn stats(&self) -> AttentionStats {
        AttentionStats::default()
    }
}

/// The chunks that a device attends for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunksTaken {
    /// Rows at least: fewer are not worth it.
    pub rows_min: Tokens,
    /// Rows at most.
    pub rows_max: Tokens,
    /// Positions up to the end of the chunk, at most.
    pub context_max: Tokens,
}

/// What attention of chunks took on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttentionStats {
    /// Chunks of layers.
    pub launches: u64,
    /// Positions whose keys and values were read out of the cache for them, of all layers.
    pub read: u64,
    /// On the CPU: the cache read, masks, and padding to the graphs' shapes.
    pub padding: Nanos,
    /// On the device.
    pub running: Nanos,
    /// What keys and values take that are kept for it now.
    pub kept: Bytes,
}

impl ChunksTaken {
    /// Whether it takes so many rows that end at this position.
    #[must_use]
    pub fn take(&self, rows: Tokens, end: Tokens) -> bool {
        (self.rows_min..=self.rows_max).contains(&rows) && end <= self.context_max
    }
}

impl AttentionStats {
    /// What was done since an earlier time; what is kept is what is kept.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            launches: self.launches - earlier.launches,
            read: self.read - earlier.read,
            padding: self.padding.saturating_sub(earlier.padding),
            running: self.running.saturating_sub(earlier.running),
            kept: self.kept,
        }
    }
}

impl AddAssign for AttentionStats {
    fn add_assign(&mut self, other: Self) {
        self.launches += other.launches;
        self.read += other.read;
        self.padding += other.padding;
        self.running += other.running;
        self.kept += other.kept;
    }
}

/// Rows of one sequence, and all that they see.
#[derive(Debug)]
pub struct ChunkRows<'a> {
    /// `[rows][stride]`, of which the first floats are the queries, turned by rope.
    pub queries: &'a [f32],
    /// Floats from one row's queries to the next.
    pub stride: usize,
    /// What they see.
    pub cache: CacheRows<'a>,
    /// Positions before the rows.
    pub before: Tokens,
}

/// The keys and values of a layer up to a position, in their pages. The last ones are those of the pass under way, which
/// may be given up yet.
#[derive(Debug)]
pub struct CacheRows<'a> {
    kv: &'a KvTable,
    key_bias: Option<TurnedBias<'a>>,
    /// Its place in pages.
    layer: usize,
    positions: Tokens,
}

impl<'a> CacheRows<'a> {
    pub(super) fn new(kv: &'a KvTable, key_bias: Option<TurnedBias<'a>>, layer: usize, positions: Tokens) -> Self {
        Self { kv, key_bias, layer, positions }
    }
}

impl CacheRows<'_> {
    /// Positions, those of the pass among them.
    #[must_use]
    pub fn positions(&self) -> Tokens {
        self.positions
    }

    /// Floats of a position's keys, and of its values.
    #[must_use]
    pub fn width(&self) -> usize {
        self.kv.layout().kv_heads * self.kv.layout().head_dim
    }

    /// How its pages are laid out.
    #[must_use]
    pub fn layout(&self) -> KvLayout {
        *self.kv.layout()
    }

    /// What each page from one on has of the layer, as [`KvLayout::of_layer`]. Of the last one, what comes behind the
    /// positions may be anything.
    pub fn pages(&self, from: usize) -> impl Iterator<Item = &[u8]> {
        let pages = self.positions.as_usize().div_ceil(PAGE_TOKENS).saturating_sub(from);
        self.kv.memory().skip(from).take(pages).map(|page| self.kv.layout().of_layer(page.bytes(), self.layer))
    }

    /// The memory that its first page shares with others of the pool.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        self.kv.memory().next()?.region()
    }

    /// Of each page, those reserved for the rows of the pass among them, which one of a region it is; nothing for one that lies
    /// elsewhere.
    pub fn numbers_in(&self, region: &Region) -> impl Iterator<Item = Option<usize>> {
        self.kv.memory().map(|page| page.number_in(region))
    }

    /// A page of the same pool that no sequence has.
    #[must_use]
    pub fn page_of_device(&self) -> PageOfDevice {
        self.kv.page_of_device()
    }

    /// Notes that all positions are copied, or about to be.
    pub fn note_copied(&self) {
        self.kv.copied_to(self.positions);
    }

    /// What is in the cache is called so: a copy that is made now is one of this lineage.
    #[must_use]
    pub fn lineage(&self) -> LineageId {
        self.kv.lineage()
    }

    /// Of a copy that was made of a lineage, how many positions are still these: at most those before the pass.
    #[must_use]
    pub fn unchanged_since(&self, lineage: LineageId) -> Tokens {
        self.kv.unchanged_since(lineage)
    }

    /// Writes keys and values from a position on as floats, `[positions][kv heads × dimensions]` each. What is longer stays
    /// as it is behind.
    ///
    /// # Panics
    /// If there is no room for all of them.
    pub fn read(&self, from: Tokens, keys: &mut [f32], values: &mut [f32]) {
        let layout = *self.kv.layout();
        let (width, head, from) = (self.width(), layout.head_dim, from.as_usize());
        let floats = self.positions.as_usize().saturating_sub(from) * width;
        self.kv.copied_to(self.positions);
        let pages: Vec<_> = self.kv.memory().collect();
        let sides = keys[..floats].chunks_exact_mut(width).zip(values[..floats].chunks_exact_mut(width));
        for (position, (keys, values)) in (from..).zip(sides) {
            let page = pages[position / PAGE_TOKENS].bytes();
            let heads = keys.chunks_exact_mut(head).zip(values.chunks_exact_mut(head)).enumerate();
            for (kv_head, (keys, values)) in heads {
                layout.read_position(page, (self.layer, kv_head, position % PAGE_TOKENS), keys, values);
                if let Some(bias) = self.key_bias.filter(|_| layout.format.keeps_key_bias_apart()) {
                    bias.give_back(keys, kv_head, position);
                }
            }
        }
    }
}

impl Model {
    /// Runs the attention of a layer on a device, if the pass is a chunk that it takes.
    ///
    /// # Errors
    /// [`NotRun`]; the pass is as it was.
    ///
    /// # Panics
    /// If the layer does not exist.
    pub fn attend_on(&self, device: &dyn AttentionWise, pass: &mut Pass, layer: usize) -> Result<(), NotRun> {
        let chunk = pass.chunk().ok_or_else(|| no_chunk("its rows are of several sequences, or branch"))?;
        if self.blueprint().layers[layer].window.is_some() {
            return Err(no_chunk("its rows do not see all positions before them"));
        }
        if self.blueprint().recurrent.is_some() {
            return Err(no_chunk("other layers have a recurrent state"));
        }
        if self.blueprint().wide.is_some() || self.blueprint().layers[layer].cache_of.is_some() {
            return Err(no_chunk("layers differ in their heads"));
        }
        if self.weights().layers[layer].sinks.is_some() {
            return Err(no_chunk("its heads have sinks"));
        }
        let (rows, before) = (Tokens(chunk.end.0 - chunk.start.0), chunk.start);
        let (kv, key_bias) = (&pass.segments[0].kv, self.key_bias(layer));
        let cache = CacheRows { kv, key_bias, layer: self.blueprint().place(layer), positions: chunk.end };
        let taken = device.chunks();
        if chunk.end > taken.context_max {
            device.outgrown(&cache);
        }
        if !taken.take(rows, chunk.end) {
            return Err(no_chunk("it has too few rows, or too many positions"));
        }
        let buffers = &mut pass.activations.buffers;
        let (queries, stride, attended) =
            buffers.attending(0..rows.as_usize()).ok_or_else(|| no_chunk("rows are not dense"))?;
        device.attend(layer, &ChunkRows { queries, stride, cache, before }, attended)
    }
}

fn no_chunk(why: &str) -> NotRun {
    NotRun::Unsupported(format!("it is no chunk of a prompt: {why}"))
}
