//! The fused blocks of a loaded model.

use crate::weights::linear_weights;
use duet_graphs::{Activation, Block, BlockError, FeedForward, GatedFeed, Linear, Norm, WeightRule, WeightsError};
use duet_model::{Gating, LoadError, Model, PlainLayer, PlainMatrix};

/// Why a model has no blocks.
#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    /// Its weights could not be read again.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its weights cannot be rounded.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Gates that no block has.
    #[error("its gates are clamped, which devices do not take yet: run this model on the CPU")]
    Gating,
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

/// Makes the blocks of layer `layer`, with weights that a device of this rule takes.
///
/// # Errors
/// If its weights cannot be read or rounded.
pub fn layer_blocks(model: &Model, layer: usize, rule: WeightRule) -> Result<LayerBlocks, LayersError> {
    model.read_layer(layer, |plain| blocks_of(model, plain, rule))?
}

fn blocks_of(model: &Model, plain: PlainLayer<'_>, rule: WeightRule) -> Result<LayerBlocks, LayersError> {
    let norm = |weight: Vec<f32>| Norm { weight, epsilon: model.epsilon() };
    let weights = |matrix: &PlainMatrix<'_>| linear_weights(matrix, rule);
    let PlainLayer { attention_norm, qkv, qkv_bias, output, output_norm, ffn_norm, gate, up, down, feed_norm } = plain;
    let projection = Linear { weights: weights(&qkv)?, bias: qkv_bias };
    let feed = GatedFeed {
        gate: weights(&gate)?.into(),
        up: weights(&up)?.into(),
        activation: activation(model)?,
        down: weights(&down)?.into(),
    };
    let parts = FeedForward {
        output: weights(&output)?.into(),
        output_norm: output_norm.map(norm),
        norm: norm(ffn_norm),
        feed,
        feed_norm: feed_norm.map(norm),
    };
    let qkv = Block::qkv_projection(norm(attention_norm), projection)?;
    Ok(LayerBlocks { qkv, feed_forward: Block::feed_forward(parts)? })
}

/// The nonlinearity of a model's gates.
pub(crate) fn activation(model: &Model) -> Result<Activation, LayersError> {
    match model.gating() {
        Gating::Silu => Ok(Activation::Silu),
        Gating::GeluTanh => Ok(Activation::GeluTanh),
        Gating::ClampedSwish => Err(LayersError::Gating),
    }
}

/// Makes the head, with weights that a device of this rule takes.
///
/// # Errors
/// As [`layer_blocks`].
pub fn head_block(model: &Model, rule: WeightRule) -> Result<Block, LayersError> {
    let norm = Norm { weight: model.final_norm().to_vec(), epsilon: model.epsilon() };
    Ok(Block::head(norm, linear_weights(&model.plain_head()?, rule)?)?)
}
