//! A device that attends for chunks in single precision, over the whole cache each time.

use duet_model::Model;
use duet_model::forward::{AttentionStats, AttentionWise, ChunkRows, ChunksTaken, NotRun};
use duet_types::Tokens;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct FloatAttention {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    scale: f32,
    taken: ChunksTaken,
    launches: AtomicU64,
    fails: Arc<AtomicBool>,
}

impl FloatAttention {
    /// For the chunks of these; it fails while the flag is set.
    pub(crate) fn new(model: &Model, taken: ChunksTaken, fails: &Arc<AtomicBool>) -> Self {
        let shape = model.blueprint();
        let (heads, kv_heads, head_dim, scale) = (shape.heads, shape.kv_heads, shape.head_dim, shape.attention_scale);
        Self { heads, kv_heads, head_dim, scale, taken, launches: AtomicU64::new(0), fails: Arc::clone(fails) }
    }

    /// One head of one row, over the positions that it sees.
    fn head(&self, query: &[f32], keys: &[f32], values: &[f32], kv_head: usize) -> Vec<f32> {
        let width = self.kv_heads * self.head_dim;
        let of = |side: &'_ [f32]| side.chunks_exact(width).map(|x| x[kv_head * self.head_dim..].to_vec()).collect();
        let (keys, values): (Vec<Vec<f32>>, Vec<Vec<f32>>) = (of(keys), of(values));
        let dot = |key: &Vec<f32>| query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>() * self.scale;
        let scores: Vec<f32> = keys.iter().map(dot).collect();
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f32 = weights.iter().sum();
        let mut found = vec![0.0; self.head_dim];
        for (weight, value) in weights.iter().zip(&values) {
            found.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight / total * value);
        }
        found
    }
}

impl AttentionWise for FloatAttention {
    fn chunks(&self) -> ChunksTaken {
        self.taken
    }

    fn attend(&self, _: usize, chunk: &ChunkRows<'_>, attended: &mut [f32]) -> Result<(), NotRun> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(NotRun::Failed("its attention is gone".to_owned()));
        }
        let width = chunk.cache.width();
        let [mut keys, mut values] = [(); 2].map(|()| vec![0.0; chunk.cache.positions().as_usize() * width]);
        chunk.cache.read(Tokens::ZERO, &mut keys, &mut values);
        let rows = attended.chunks_exact_mut(self.heads * self.head_dim).zip(chunk.queries.chunks_exact(chunk.stride));
        for (row, (attended, queries)) in rows.enumerate() {
            let seen = (chunk.before.as_usize() + row + 1) * width;
            let heads = attended.chunks_exact_mut(self.head_dim).zip(queries.chunks_exact(self.head_dim));
            for (head, (out, query)) in heads.enumerate() {
                let kv_head = head / (self.heads / self.kv_heads);
                out.copy_from_slice(&self.head(query, &keys[..seen], &values[..seen], kv_head));
            }
        }
        self.launches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn stats(&self) -> AttentionStats {
        AttentionStats { launches: self.launches.load(Ordering::Relaxed), ..AttentionStats::default() }
    }
}
