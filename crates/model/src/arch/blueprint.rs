//! All that the forward pass knows of a model.

use duet_kernels::matmul::Gating;

/// A dense decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Blueprint {
    /// Longest sequence.
    pub context: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward block.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// Of all norms.
    pub epsilon: f32,
    /// Embeddings are multiplied with this.
    pub embedding_scale: f32,
    /// Attention scores are multiplied with this.
    pub attention_scale: f32,
    /// Nonlinearity of the gates.
    pub gating: Gating,
    /// How the file pairs the dimensions that rope turns.
    pub rope_pairs: RopePairs,
    /// Rope tables; layers name theirs.
    pub ropes: Vec<Rope>,
    /// Layer by layer.
    pub layers: Vec<LayerPlan>,
    /// Tensors beyond the common ones.
    pub extras: &'static [Extra],
}

impl Blueprint {
    /// Whether layers have `extra`.
    #[must_use]
    pub fn has(&self, extra: Extra) -> bool {
        self.extras.contains(&extra)
    }
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    /// Visible positions, itself included; `None`: all.
    pub window: Option<usize>,
    /// Index into [`Blueprint::ropes`].
    pub rope: usize,
}

/// Rotary position embedding: dimension pair `i` of `n` turns by `position × frequency[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// One for each pair.
    pub frequencies: Vec<f32>,
}

/// Which dimensions of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `2i` and `2i + 1`. Weights are reordered to halves when packed.
    Neighbours,
    /// `i` and `i + n`.
    Halves,
}

/// Tensors that some architectures have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Biases of the QKV projection.
    QkvBias,
    /// Norms of each query and key head.
    HeadNorms,
    /// Norms of what attention and feed-forward add.
    PostNorms,
}
