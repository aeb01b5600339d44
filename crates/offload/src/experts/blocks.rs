//! The blocks of a layer whose feed-forward is experts: projection to queries, keys and values; output projection; the
//! expert that all rows go to; and groups of the others.

use crate::layers::{LayersError, activation};
use crate::weights::linear_weights;
use duet_graphs::{Block, GatedFeed, Linear, Norm, WeightRule};
use duet_model::{Model, NormForm, PlainExperts, PlainFeed};
use duet_moe::ExpertId;
use duet_types::Bytes;

/// What a layer has on a device beside its groups.
#[derive(Debug)]
pub(super) struct DenseBlocks {
    /// Absent where norms have biases: the CPU projects then.
    pub(super) qkv: Option<Block>,
    pub(super) output: Block,
    pub(super) shared: Option<Block>,
}

/// Makes some of a layer's experts one block, with weights that a device of this rule takes. Nothing if the layer has none.
///
/// # Errors
/// If their weights cannot be read or rounded.
///
/// # Panics
/// If the layer does not have these.
pub fn expert_block(
    model: &Model,
    layer: usize,
    experts: &[ExpertId],
    rule: WeightRule,
) -> Result<Option<Block>, LayersError> {
    let maker = BlockMaker { model, rule };
    model.read_experts(layer, |plain| maker.group(&plain, experts))?.transpose()
}

/// Constants of what a layer has on a device beside its groups.
///
/// # Errors
/// If its weights cannot be read or rounded.
pub(crate) fn dense_bytes(model: &Model, layer: usize, rule: WeightRule) -> Result<Bytes, LayersError> {
    let maker = BlockMaker { model, rule };
    let blocks = model.read_experts(layer, |plain| maker.dense(&plain))?.transpose()?;
    let Some(DenseBlocks { qkv, output, shared }) = blocks else { return Ok(Bytes::ZERO) };
    Ok([qkv, Some(output), shared].iter().flatten().map(Block::constant_bytes).sum())
}

/// Makes a layer's blocks of the file's weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockMaker<'a> {
    pub(super) model: &'a Model,
    pub(super) rule: WeightRule,
}

impl BlockMaker<'_> {
    pub(super) fn dense(&self, plain: &PlainExperts<'_>) -> Result<DenseBlocks, LayersError> {
        let weights = |matrix| linear_weights(matrix, self.rule);
        let qkv = match plain.norm_form {
            NormForm::Layer => None,
            NormForm::Rms => {
                let norm = Norm { weight: plain.attention_norm.clone(), epsilon: self.model.epsilon() };
                let projection = Linear { weights: weights(&plain.qkv)?, bias: plain.qkv_bias.clone() };
                Some(Block::qkv_projection(norm, projection)?)
            }
        };
        let output = Linear { weights: weights(&plain.output)?, bias: plain.output_bias.clone() };
        let shared = plain.shared.as_ref().map(|feed| Ok(Block::experts(vec![self.feed(feed)?])?));
        Ok(DenseBlocks {
            qkv,
            output: Block::output_projection(output, self.model.blueprint().hidden)?,
            shared: shared.transpose().map_err(|error: LayersError| error)?,
        })
    }

    /// A group of a layer's experts.
    pub(super) fn group(&self, plain: &PlainExperts<'_>, experts: &[ExpertId]) -> Result<Block, LayersError> {
        let feeds = experts.iter().map(|expert| self.feed(&plain.experts[expert.index()]));
        Ok(Block::experts(feeds.collect::<Result<_, _>>()?)?)
    }

    fn feed(&self, plain: &PlainFeed<'_>) -> Result<GatedFeed, LayersError> {
        Ok(GatedFeed {
            gate: linear_weights(&plain.gate, self.rule)?.into(),
            up: linear_weights(&plain.up, self.rule)?.into(),
            activation: activation(self.model)?,
            down: linear_weights(&plain.down, self.rule)?.into(),
        })
    }
}
