//! All that the forward pass knows of a model.

use super::ExpertPlan;
use duet_kernels::fused::RecurrenceShape;
use duet_kernels::matmul::Gating;

/// A decoder-only transformer, dense or with experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Blueprint {
    /// Longest sequence.
    pub context: usize,
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward block, where there are no experts in its place.
    pub ffn: usize,
    /// Experts in place of the feed-forward block.
    pub experts: Option<ExpertPlan>,
    /// The first layers, which have a feed-forward block also where the others have experts.
    pub dense_layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// Heads of layers whose plan says that theirs are others.
    pub wide: Option<WideHeads>,
    /// Of all norms.
    pub epsilon: f32,
    /// Embeddings are multiplied with this.
    pub embedding_scale: f32,
    /// What layers add to the residual stream is multiplied with this.
    pub residual_scale: f32,
    /// Attention scores are multiplied with this.
    pub attention_scale: f32,
    /// Logits are multiplied with this.
    pub logit_scale: f32,
    /// What logits are bent to stay below: `cap · tanh(logit / cap)`.
    pub logit_cap: Option<f32>,
    /// Width of an input that each layer has of its own, made of a row's token and of its embedding.
    pub layer_input: Option<usize>,
    /// Nonlinearity of the gates.
    pub gating: Gating,
    /// How the file pairs the dimensions that rope turns.
    pub rope_pairs: RopePairs,
    /// Rope tables; layers name theirs.
    pub ropes: Vec<Rope>,
    /// Layer by layer.
    pub layers: Vec<LayerPlan>,
    /// What some layers have in attention's place.
    pub recurrent: Option<Recurrent>,
    /// Tensors beyond the common ones.
    pub extras: &'static [Extra],
}

impl Blueprint {
    /// Whether layers have `extra`.
    #[must_use]
    pub fn has(&self, extra: Extra) -> bool {
        self.extras.contains(&extra)
    }

    /// What is added to the mean square in norms of the residual stream, which the kernels keep in units of
    /// [`Self::residual_scale`]: what layers add to it is then not scaled.
    pub(crate) fn stream_epsilon(&self) -> f32 {
        self.epsilon / self.residual_scale.powi(2)
    }

    /// Layers with attention that have keys and values of their own.
    #[must_use]
    pub fn attention_layers(&self) -> usize {
        self.before(self.layers.len(), Mixer::Attention)
    }

    /// Those of them with heads of this shape.
    #[must_use]
    pub fn cached_layers(&self, heads: Heads) -> usize {
        self.cached_before(self.layers.len(), heads)
    }

    /// Key heads of a layer, and dimensions of its heads.
    #[must_use]
    pub fn heads_of(&self, layer: usize) -> WideHeads {
        let common = WideHeads { kv_heads: self.kv_heads, head_dim: self.head_dim };
        match self.layers[layer].heads {
            Heads::Common => common,
            Heads::Wide => self.wide.unwrap_or(common),
        }
    }

    /// Width of the feed-forward block of a layer.
    #[must_use]
    pub fn ffn_of(&self, layer: usize) -> usize {
        self.layers[layer].ffn.unwrap_or(self.ffn)
    }

    /// Layers with something else in its place.
    #[must_use]
    pub fn recurrent_layers(&self) -> usize {
        self.before(self.layers.len(), Mixer::Recurrent)
    }

    /// A layer's place among those that are like it: where its keys and values, or its state, are kept. Those with wide heads
    /// come last, and of the others those that see all positions come first.
    #[must_use]
    pub fn place(&self, layer: usize) -> usize {
        let plan = &self.layers[layer];
        match (plan.mixer, plan.cache_of, plan.heads) {
            (Mixer::Recurrent, ..) => self.before(layer, Mixer::Recurrent),
            (Mixer::Attention, Some(other), _) => self.place(other),
            (Mixer::Attention, None, Heads::Common) => self.among_common(layer),
            (Mixer::Attention, None, Heads::Wide) => {
                self.cached_layers(Heads::Common) + self.cached_before(layer, Heads::Wide)
            }
        }
    }

    fn among_common(&self, layer: usize) -> usize {
        let lasts = self.layers[layer].window.is_none();
        let alike = |plan: &&LayerPlan| plan.has_cache(Heads::Common) && plan.window.is_none() == lasts;
        let before = self.layers[..layer].iter().filter(alike).count();
        if lasts { before } else { self.lasting_common() + before }
    }

    /// Layers with common heads and a cache of their own that see all positions.
    pub(super) fn lasting_common(&self) -> usize {
        self.layers.iter().filter(|plan| plan.has_cache(Heads::Common) && plan.window.is_none()).count()
    }

    fn before(&self, layer: usize, mixer: Mixer) -> usize {
        self.layers[..layer].iter().filter(|plan| plan.mixer == mixer && plan.cache_of.is_none()).count()
    }

    fn cached_before(&self, layer: usize, heads: Heads) -> usize {
        self.layers[..layer].iter().filter(|plan| plan.has_cache(heads)).count()
    }

    /// The last layer that keeps something of a row for the rows behind it: those after it read what others keep.
    #[must_use]
    pub fn last_that_keeps(&self) -> usize {
        self.layers.iter().rposition(|plan| plan.cache_of.is_none()).unwrap_or(0)
    }

    /// Whether a layer keeps a state in place of keys and values.
    #[must_use]
    pub fn is_recurrent(&self, layer: usize) -> bool {
        self.layers[layer].mixer == Mixer::Recurrent
    }

    /// Channels of the convolution that recurrent layers have.
    #[must_use]
    pub fn channels(&self) -> usize {
        match &self.recurrent {
            None => 0,
            Some(Recurrent::ShortConvolution { .. }) => self.hidden,
            Some(Recurrent::Matrices(shape)) => shape.channels(),
        }
    }

    /// Columns that it reads of positions before: one less than it has taps.
    #[must_use]
    pub fn columns_before(&self) -> usize {
        match &self.recurrent {
            None => 0,
            Some(Recurrent::ShortConvolution { taps } | Recurrent::Matrices(RecurrenceShape { taps, .. })) => taps - 1,
        }
    }

    /// Floats that a recurrent layer keeps of the positions before: columns, then matrices.
    #[must_use]
    pub fn layer_state(&self) -> usize {
        let matrices = match &self.recurrent {
            Some(Recurrent::Matrices(shape)) => shape.matrices(),
            _ => 0,
        };
        self.columns_before() * self.channels() + matrices
    }

    /// What a row is projected to, in the layer where that is most.
    #[must_use]
    pub fn projected(&self) -> usize {
        let gates = if self.has(Extra::OutputGate) { self.heads } else { 0 };
        let attention = (self.heads + 2 * self.kv_heads + gates) * self.head_dim;
        let wide = self.wide.map_or(0, |wide| (self.heads + 2 * wide.kv_heads + gates) * wide.head_dim);
        attention.max(wide).max(match &self.recurrent {
            None => 0,
            Some(Recurrent::ShortConvolution { .. }) => 3 * self.hidden,
            Some(Recurrent::Matrices(shape)) => shape.projected(),
        })
    }

    /// What is found for a row before the output projection, in the layer where that is most.
    #[must_use]
    pub fn found(&self) -> usize {
        let attention = self.heads * self.wide.map_or(self.head_dim, |wide| wide.head_dim.max(self.head_dim));
        attention.max(match &self.recurrent {
            None => 0,
            Some(Recurrent::ShortConvolution { .. }) => self.hidden,
            Some(Recurrent::Matrices(shape)) => shape.width(),
        })
    }

    /// The experts of a layer, if it has any.
    #[must_use]
    pub fn experts_of(&self, layer: usize) -> Option<ExpertPlan> {
        self.experts.filter(|_| layer >= self.dense_layers)
    }

    /// What the norm before the head is called in the file.
    pub(crate) fn final_norm(&self) -> &'static str {
        if self.has(Extra::NormOfEmbeddings) { "token_embd_norm" } else { "output_norm" }
    }

    /// What the norm before the feed-forward block, or before experts, is called in the file.
    pub(crate) fn ffn_norm(&self) -> &'static str {
        match () {
            () if self.has(Extra::BlockBeside) => "pre_ffw_norm_2",
            () if self.has(Extra::NormBehindAttention) => "post_attention_norm",
            () => "ffn_norm",
        }
    }

    /// Width of the feed-forward blocks that a row goes through.
    #[must_use]
    pub fn active_ffn(&self) -> usize {
        self.experts.map_or(self.ffn, |experts| experts.active_ffn())
    }
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    /// Visible positions, itself included; `None`: all.
    pub window: Option<usize>,
    /// Index into [`Blueprint::ropes`].
    pub rope: usize,
    /// By what positions know of each other.
    pub mixer: Mixer,
    /// Of what shape its heads are.
    pub heads: Heads,
    /// The earlier layer whose keys and values it reads, if it has none.
    pub cache_of: Option<usize>,
    /// Width of its feed-forward block, where it is not [`Blueprint::ffn`].
    pub ffn: Option<usize>,
}

impl LayerPlan {
    /// Whether it has keys and values of its own, of heads of this shape.
    pub(super) fn has_cache(&self, heads: Heads) -> bool {
        self.mixer == Mixer::Attention && self.cache_of.is_none() && self.heads == heads
    }

    /// A layer with attention over all positions, turned by the first rope.
    pub const ATTENTION: Self =
        Self { window: None, rope: 0, mixer: Mixer::Attention, heads: Heads::Common, cache_of: None, ffn: None };
}

/// Of what shape a layer's heads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// As the blueprint says.
    Common,
    /// As its [`Blueprint::wide`] says.
    Wide,
}

/// A shape of heads. There are as many query heads as in all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideHeads {
    /// Key and value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
}

/// By what a layer's positions know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixer {
    /// Attention.
    Attention,
    /// What [`Blueprint::recurrent`] says.
    Recurrent,
}

/// What stands in attention's place in some layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrent {
    /// A short convolution ([`duet_kernels::fused::short_convolution`]).
    ShortConvolution {
        /// Positions that it goes over.
        taps: usize,
    },
    /// A matrix for each head ([`duet_kernels::fused::recurrence`]).
    Matrices(RecurrenceShape),
}

/// Rotary position embedding: pair `i` of `n` turns by `position × frequency[i]`. The pairs are the first `2n` dimensions of
/// a head; those behind them are not turned.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// One for each pair.
    pub frequencies: Vec<f32>,
    /// Rotated dimensions are multiplied with this: 1 but where a context was stretched.
    pub magnitude: f32,
}

/// Which dimensions of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `2i` and `2i + 1`. Weights are reordered to halves of what is turned when packed.
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
    /// Norms of each value head, without weights.
    ValueNorms,
    /// Layers without a projection to values take that to keys for it.
    ValuesOfKeys,
    /// What a layer makes of the residual stream is multiplied with a number of its own.
    LayerScales,
    /// Norms over all query heads together, and over all key heads together.
    WidthNorms,
    /// Norms of what attention and feed-forward add.
    PostNorms,
    /// A gate of what attention finds, beside each query.
    OutputGate,
    /// A bias of attention's output projection.
    OutputBias,
    /// A bias of the head.
    HeadBias,
    /// Norms of the residual stream take off the mean and have biases.
    LayerNorms,
    /// The norm before the head is named after the embeddings.
    NormOfEmbeddings,
    /// The norm before the feed-forward block is named after what it comes behind.
    NormBehindAttention,
    /// Of each query head a score of no position, which weighs with the others and has no value.
    Sinks,
    /// Biases of the router, and of each expert's matrices.
    ExpertBiases,
    /// Of each expert, added to what it is chosen by.
    ChoiceBias,
    /// The shared expert is a dense block beside the others: both have norms of their own, and so has the router, and each
    /// expert's weight has a factor ([`duet_kernels::fused::Beside`]).
    BlockBeside,
}
