//! Attention of a chunk as a graph: a fixed number of rows over a fixed number of positions. (NPUMoE §3.2)
//!
//! Static shapes know no growing cache, so keys and values come padded to the graph's positions, and a mask that the CPU
//! makes says which of them a row sees. There are no weights in it: one graph serves all layers.
//!
//! Invariant: positions that the mask shuts out change nothing but by what softmax makes of [`SHUT`].

use duet_types::Tokens;

/// The shape of a chunk's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkAttention {
    /// Heads of queries, a multiple of those of keys.
    pub heads: usize,
    /// Heads of keys and of values.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Rows of the chunk.
    pub rows: Tokens,
    /// Positions of keys and values.
    pub context: Tokens,
}

/// Added to the score of a position that a row does not see. Half precision holds it.
pub const SHUT: f32 = -60000.0;

/// What the graph's inputs and outputs are called, in their order.
pub mod port {
    /// In: `[rows, heads × dimensions]`, turned by rope.
    pub const QUERIES: &str = "queries";
    /// In: `[context, kv heads × dimensions]`.
    pub const KEYS: &str = "keys";
    /// In: `[context, kv heads × dimensions]`.
    pub const VALUES: &str = "values";
    /// In: `[rows, context]`, zero or [`super::SHUT`].
    pub const MASK: &str = "mask";
    /// Out: `[rows, heads × dimensions]`.
    pub const ATTENDED: &str = "attended";
}

impl ChunkAttention {
    /// Whether it is one: something of everything, and whole groups of heads.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let Self { heads, kv_heads, head_dim, rows, context, .. } = *self;
        kv_heads > 0 && heads > 0 && heads.is_multiple_of(kv_heads) && head_dim > 0 && rows.0 > 0 && context >= rows
    }

    /// Floats of queries in a row, and of what is found.
    #[must_use]
    pub fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Floats of keys at a position, and of values.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// The mask of rows that follow `before` positions: each sees those up to its own. Rows of padding see the first.
    ///
    /// # Panics
    /// If the mask has another size.
    pub fn mask(&self, before: Tokens, mask: &mut [f32]) {
        let context = self.context.as_usize();
        assert!(mask.len() == self.rows.as_usize() * context);
        for (row, seen) in mask.chunks_exact_mut(context).enumerate() {
            let last = (before.as_usize() + row).min(context - 1);
            seen[..=last].fill(0.0);
            seen[last + 1..].fill(SHUT);
        }
    }

    /// What the graph computes, for tests and self-tests.
    ///
    /// # Panics
    /// If inputs have other sizes.
    #[must_use]
    pub fn reference(&self, [queries, keys, values, mask]: [&[f32]; 4]) -> Vec<f32> {
        let (context, width, group) = (self.context.as_usize(), self.head_dim, self.heads / self.kv_heads);
        let mut attended = vec![0.0; queries.len()];
        for (at, out) in attended.chunks_exact_mut(width).enumerate() {
            let (row, head) = (at / self.heads, at % self.heads);
            let query = &queries[at * width..(at + 1) * width];
            let side = |of: &'_ [f32], position: usize| {
                let start = (position * self.kv_heads + head / group) * width;
                of[start..start + width].to_vec()
            };
            let score = |position: usize| {
                let dot: f32 = query.iter().zip(side(keys, position)).map(|(q, k)| q * k).sum();
                dot * self.scale + mask[row * context + position]
            };
            let scores: Vec<f32> = (0..context).map(score).collect();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f32 = weights.iter().sum();
            for (position, weight) in weights.iter().enumerate() {
                out.iter_mut().zip(side(values, position)).for_each(|(out, value)| *out += weight / total * value);
            }
        }
        attended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> ChunkAttention {
        ChunkAttention { heads: 4, kv_heads: 2, head_dim: 3, scale: 0.5, rows: Tokens(2), context: Tokens(4) }
    }

    #[test]
    fn a_row_sees_what_comes_before_it_and_padding_sees_something() {
        let mut mask = [1.0; 8];
        shape().mask(Tokens(1), &mut mask);
        assert_eq!(mask, [0.0, 0.0, SHUT, SHUT, 0.0, 0.0, 0.0, SHUT]);
        shape().mask(Tokens(9), &mut mask);
        assert_eq!(mask, [0.0; 8]);
    }

    #[test]
    fn positions_that_are_shut_out_change_nothing() {
        let values = |seed: usize, len: usize| (0..len).map(|i| ((i * 7 + seed) % 11) as f32 * 0.1).collect::<Vec<_>>();
        let (queries, mut keys, mut cached) = (values(1, 24), values(2, 24), values(3, 24));
        let mut mask = vec![0.0; 8];
        shape().mask(Tokens(1), &mut mask);
        let found = shape().reference([&queries, &keys, &cached, &mask]);
        keys[18..].fill(9.0);
        cached[18..].fill(-9.0);
        assert_eq!(shape().reference([&queries, &keys, &cached, &mask]), found);
        keys[..6].fill(9.0);
        assert_ne!(shape().reference([&queries, &keys, &cached, &mask]), found);
    }

    #[test]
    fn what_is_no_attention_is_told() {
        assert!(shape().is_whole());
        for wrong in [
            ChunkAttention { heads: 3, ..shape() },
            ChunkAttention { kv_heads: 0, ..shape() },
            ChunkAttention { context: Tokens(1), ..shape() },
            ChunkAttention { rows: Tokens(0), ..shape() },
        ] {
            assert!(!wrong.is_whole());
        }
    }
}
