//! A layer's weights as the file has them, for devices that pack them in their own way.

use super::parts::{Part, plain};
use super::{FeedWeights, LayerWeights, Packer, names};
use crate::arch::Extra;
use crate::load::LoadError;
use crate::plain::{NormForm, PlainExperts, PlainLayer, PlainMatrix};

impl<'a> Packer<'a> {
    /// The weights of layer `index` in the file, whose vectors are in `packed` already.
    pub(crate) fn plain_layer(&self, index: usize, packed: &LayerWeights) -> Result<PlainLayer<'a>, LoadError> {
        let b = self.blueprint;
        let FeedWeights::Dense { norm: feed_norm, .. } = &packed.feed else {
            return Err(LoadError::Experts { layer: index });
        };
        self.check_plain(index, packed)?;
        if packed.output_bias.is_some() {
            return Err(LoadError::OnCpuOnly { layer: index, what: "a bias of its output projection" });
        }
        let output = self.matrix(&format!("blk.{index}.attn_output.weight"), b.hidden, b.heads * b.head_dim)?;
        let feed = self.feed_tensors(index, "", b.ffn)?.plain(0);
        Ok(PlainLayer {
            attention_norm: packed.attention_norm.weight.clone(),
            qkv: plain(&self.qkv_parts(index)?),
            qkv_bias: packed.qkv_bias.clone(),
            output: plain(&[Part::whole(output)]),
            output_norm: packed.output_norm.clone(),
            ffn_norm: packed.ffn_norm.weight.clone(),
            gate: feed.gate,
            up: feed.up,
            down: feed.down,
            feed_norm: feed_norm.clone(),
        })
    }

    /// The weights of layer `index` in the file, if it has experts.
    pub(crate) fn plain_experts(
        &self,
        index: usize,
        packed: &LayerWeights,
    ) -> Result<Option<PlainExperts<'a>>, LoadError> {
        let b = self.blueprint;
        let FeedWeights::Experts { plan, biases, .. } = &packed.feed else { return Ok(None) };
        self.check_plain(index, packed)?;
        if biases.is_some() {
            return Err(LoadError::OnCpuOnly { layer: index, what: "experts with biases" });
        }
        let output = self.matrix(&format!("blk.{index}.attn_output.weight"), b.hidden, b.heads * b.head_dim)?;
        let stack = self.expert_stack(index, *plan)?;
        let shared = plan.shared.map(|ffn| Ok::<_, LoadError>(self.feed_tensors(index, names::SHARED, ffn)?.plain(0)));
        Ok(Some(PlainExperts {
            attention_norm: packed.attention_norm.weight.clone(),
            qkv: plain(&self.qkv_parts(index)?),
            qkv_bias: packed.qkv_bias.clone(),
            output: plain(&[Part::whole(output)]),
            output_bias: packed.output_bias.clone(),
            experts: (0..plan.count).map(|expert| stack.plain(expert)).collect(),
            shared: shared.transpose()?,
            norm_form: if packed.ffn_norm.bias.is_some() { NormForm::Layer } else { NormForm::Rms },
        }))
    }

    /// That devices know what the layer has.
    fn check_plain(&self, index: usize, packed: &LayerWeights) -> Result<(), LoadError> {
        let b = self.blueprint;
        let refuse = |what| Err(LoadError::OnCpuOnly { layer: index, what });
        match () {
            () if b.has(Extra::BlockBeside) => refuse("experts beside a dense block"),
            () if packed.recurrent.is_some() => refuse("a recurrent state in attention's place"),
            () if b.has(Extra::OutputGate) => refuse("gates of what its attention finds"),
            () if b.wide.is_some() => refuse("heads of a shape of its own"),
            () if b.has(Extra::ValueNorms) => refuse("norms of its values"),
            () if b.layer_input.is_some() => refuse("an input of its own"),
            () if b.has(Extra::LayerScales) => refuse("a factor of its own"),
            () if b.residual_scale != 1.0 => refuse("results that are scaled before they are added"),
            () => Ok(()),
        }
    }

    /// The weights of the head in the file.
    pub(crate) fn plain_head(&self) -> Result<PlainMatrix<'a>, LoadError> {
        if self.blueprint.logit_cap.is_some() {
            return Err(LoadError::HeadOnCpuOnly { what: "a bound of its logits" });
        }
        Ok(plain(&[Part::whole(self.head_tensor()?)]))
    }
}
