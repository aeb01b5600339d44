//! Attention of a chunk on another device than the crew's cores. (NPUMoE §3.2)
//!
//! The cache stays here, in pages of its own form; a device with static shapes reads keys and values as plain floats, up
//! to the chunk's end. It takes the rows of one sequence that see all positions before them, which is how prompts are
//! read; what branches or has a window is the crew's.

use super::pass::Pass;
use super::token_wise::NotRun;
use crate::kv::{KvTable, PAGE_TOKENS};
use crate::load::Model;
use duet_types::Tokens;
use std::fmt::Debug;

/// Runs the attention of chunks.
pub trait AttentionWise: Debug + Send + Sync {
    /// Whether it takes so many rows that end at this position: not worth it otherwise, or too long.
    fn takes(&self, rows: Tokens, end: Tokens) -> bool;

    /// From a chunk to `[rows][heads × dimensions]`.
    ///
    /// # Errors
    /// [`NotRun`].
    fn attend(&self, layer: usize, chunk: &ChunkRows<'_>, attended: &mut [f32]) -> Result<(), NotRun>;
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

/// The keys and values of a layer up to a position, in their pages.
#[derive(Debug)]
pub struct CacheRows<'a> {
    kv: &'a KvTable,
    layer: usize,
    positions: Tokens,
}

impl CacheRows<'_> {
    /// Writes keys and values as floats, `[positions][kv heads × dimensions]` each. What is longer stays as it is behind.
    ///
    /// # Panics
    /// If there is no room for all positions.
    pub fn read(&self, keys: &mut [f32], values: &mut [f32]) {
        let layout = *self.kv.layout();
        let (width, head) = (layout.kv_heads * layout.head_dim, layout.head_dim);
        let floats = self.positions.as_usize() * width;
        let pages: Vec<_> = self.kv.memory().collect();
        let sides = keys[..floats].chunks_exact_mut(width).zip(values[..floats].chunks_exact_mut(width));
        for (position, (keys, values)) in sides.enumerate() {
            let page = pages[position / PAGE_TOKENS].bytes();
            let heads = keys.chunks_exact_mut(head).zip(values.chunks_exact_mut(head)).enumerate();
            for (kv_head, (keys, values)) in heads {
                layout.read_position(page, (self.layer, kv_head, position % PAGE_TOKENS), keys, values);
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
        let (rows, shape) = (pass.rows(), self.blueprint());
        let [segment] = pass.segments.as_slice() else { return Err(no_chunk("its rows are of several sequences")) };
        if pass.trees.iter().any(Option::is_some) || shape.layers[layer].window.is_some() {
            return Err(no_chunk("its rows do not see all positions before them"));
        }
        let before = segment.kv.len();
        let end = before + Tokens(rows as u32);
        if !device.takes(Tokens(rows as u32), end) {
            return Err(no_chunk("it has too few rows, or too many positions"));
        }
        let cache = CacheRows { kv: &segment.kv, layer, positions: end };
        let buffers = &mut pass.activations.buffers;
        let (queries, stride, attended) = buffers.attending(0..rows).ok_or_else(|| no_chunk("rows are not dense"))?;
        device.attend(layer, &ChunkRows { queries, stride, cache, before }, attended)
    }
}

fn no_chunk(why: &str) -> NotRun {
    NotRun::Unsupported(format!("it is no chunk of a prompt: {why}"))
}
