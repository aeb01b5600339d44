//! The fused blocks of a loaded model.

use duet_graphs::{
    Activation, Block, BlockError, FeedForward, GatedFeed, Linear, LinearWeights, Norm, Precision, WeightsError,
};
use duet_model::{FloatLayer, FloatMatrix, Gating, LoadError, Model};

/// Why a model has no blocks.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// Its weights could not be read again.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its weights cannot be rounded.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// They make no block.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// The two blocks of a layer.
#[derive(Clone, Debug)]
pub struct LayerBlocks {
    /// Norm and projection to queries, keys and values.
    pub qkv: Block,
    /// Output projection, norm, gated block.
    pub feed_forward: Block,
}

/// Makes the blocks of layer `layer`.
///
/// # Errors
/// If its weights cannot be read or rounded.
pub fn layer_blocks(model: &Model, layer: usize) -> Result<LayerBlocks, LayersError> {
    let floats = model.float_layer(layer)?;
    let norm = |weight: Vec<f32>| Norm { weight, epsilon: model.epsilon() };
    let FloatLayer { attention_norm, qkv, qkv_bias, output, output_norm, ffn_norm, gate, up, down, feed_norm } = floats;
    let projection = Linear { weights: rounded(&qkv)?, bias: qkv_bias };
    let feed = GatedFeed {
        gate: rounded(&gate)?.into(),
        up: rounded(&up)?.into(),
        activation: match model.gating() {
            Gating::Silu => Activation::Silu,
            Gating::GeluTanh => Activation::GeluTanh,
        },
        down: rounded(&down)?.into(),
    };
    let parts = FeedForward {
        output: rounded(&output)?.into(),
        output_norm: output_norm.map(norm),
        norm: norm(ffn_norm),
        feed,
        feed_norm: feed_norm.map(norm),
    };
    let qkv = Block::qkv_projection(norm(attention_norm), projection)?;
    Ok(LayerBlocks { qkv, feed_forward: Block::feed_forward(parts)? })
}

/// Makes the head.
///
/// # Errors
/// As [`layer_blocks`].
pub fn head_block(model: &Model) -> Result<Block, LayersError> {
    let norm = Norm { weight: model.final_norm().to_vec(), epsilon: model.epsilon() };
    Ok(Block::head(norm, rounded(&model.float_head()?)?)?)
}

fn rounded(matrix: &FloatMatrix) -> Result<LinearWeights, WeightsError> {
    LinearWeights::from_rows(matrix.inputs, Precision::Int8, matrix.rows())
}
