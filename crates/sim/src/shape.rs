//! Models by their shape: published configurations, and the work and traffic of their nodes.
//!
//! Precision is the papers': weights in 8 bits with one f16 scale for each output channel, activations, keys and values
//! in f16 (W8A16). All layers are alike.

use duet_scheduler::heg::{Heg, SequenceWise, TokenWise};
use duet_types::Bytes;

/// A published configuration of a dense transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// By which it is asked for.
    pub name: &'static str,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward; it has three matrices.
    pub ffn: usize,
    /// Vocabulary.
    pub vocabulary: usize,
    /// Whether the head is the embeddings' matrix.
    pub head: Head,
}

/// Where the head's weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The embeddings' matrix serves.
    Tied,
    /// It has its own.
    Own,
}

/// The shapes that come with duet: `config.json` of each model, as its makers publish it.
pub const SHAPES: [ModelShape; 6] = [
    shape("llama-3.2-3b", 28, [3072, 24, 8, 128, 8192, 128_256], Head::Tied),
    shape("llama-3.1-8b", 32, [4096, 32, 8, 128, 14_336, 128_256], Head::Own),
    shape("qwen2.5-0.5b", 24, [896, 14, 2, 64, 4864, 151_936], Head::Tied),
    shape("qwen2.5-1.5b", 28, [1536, 12, 2, 128, 8960, 151_936], Head::Tied),
    shape("qwen2.5-7b", 28, [3584, 28, 4, 128, 18_944, 152_064], Head::Own),
    shape("smollm2-135m", 30, [576, 9, 3, 64, 1536, 49_152], Head::Tied),
];

const fn shape(name: &'static str, layers: usize, sizes: [usize; 6], head: Head) -> ModelShape {
    let [hidden, heads, kv_heads, head_dim, ffn, vocabulary] = sizes;
    ModelShape { name, layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, head }
}

impl ModelShape {
    /// The shape of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        SHAPES.into_iter().find(|shape| shape.name == name)
    }

    /// Its execution graph.
    #[must_use]
    pub fn heg(&self) -> Heg {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        Heg {
            layers: self.layers,
            qkv: linear(&[(self.hidden, queries + 2 * keys)]),
            ffn: linear(&[(queries, self.hidden), (self.hidden, 2 * self.ffn), (self.ffn, self.hidden)]),
            attention: SequenceWise {
                // Queries times keys, and weights times values.
                macs_per_pair: 2.0 * queries as f64,
                bytes_per_position: 2.0 * keys as f64 * F16,
                row_bytes: 2.0 * queries as f64 * F16,
                windowed: None,
            },
            head: linear(&[(self.hidden, self.vocabulary)]),
            experts: None,
            for_head: None,
        }
    }

    /// Weights in memory, embeddings and head included.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        let heg = self.heg();
        let layers = self.layers as f64 * (heg.qkv.weight_bytes + heg.ffn.weight_bytes);
        let matrices = if self.head == Head::Own { 2.0 } else { 1.0 };
        Bytes((layers + matrices * heg.head.weight_bytes) as u64)
    }

    /// Keys and values of one position.
    #[must_use]
    pub fn kv_bytes(&self) -> Bytes {
        Bytes((self.layers as f64 * self.heg().attention.bytes_per_position) as u64)
    }
}

/// Bytes of an activation, and of a scale.
const F16: f64 = 2.0;

/// Matrices, as inputs and outputs, that a row goes through one after the other.
fn linear(matrices: &[(usize, usize)]) -> TokenWise {
    let sum = |figure: fn(f64, f64) -> f64| -> f64 {
        matrices.iter().map(|&(inputs, outputs)| figure(inputs as f64, outputs as f64)).sum()
    };
    TokenWise {
        macs_per_row: sum(|inputs, outputs| inputs * outputs),
        weight_bytes: sum(|inputs, outputs| inputs * outputs + outputs * F16),
        row_bytes: sum(|inputs, outputs| (inputs + outputs) * F16),
        routed: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Millions of parameters as published, of multiply-accumulates of a token's products, and KV of a position.
    #[test]
    fn shapes_add_up_to_what_is_published() {
        for (name, parameters, macs, kv) in [
            ("llama-3.2-3b", 3212.7, 3212.6, 114_688),
            ("llama-3.1-8b", 8030.3, 7504.7, 131_072),
            ("qwen2.5-0.5b", 494.0, 494.0, 12_288),
            ("qwen2.5-1.5b", 1543.7, 1543.6, 28_672),
            ("qwen2.5-7b", 7615.6, 7070.3, 57_344),
            ("smollm2-135m", 134.5, 134.5, 23_040),
        ] {
            let shape = ModelShape::named(name).unwrap();
            let heg = shape.heg();
            let per_row = heg.qkv.macs_per_row + heg.ffn.macs_per_row;
            let all = shape.layers as f64 * per_row + heg.head.macs_per_row;
            assert!((all / 1e6 - macs).abs() < 1.0, "{name}: {all}");
            let weights = shape.weight_bytes().0 as f64 / 1e6;
            assert!((weights / parameters - 1.0).abs() < 4e-3, "{name}: {weights}");
            assert_eq!(shape.kv_bytes(), Bytes(kv), "{name}");
        }
    }
}
