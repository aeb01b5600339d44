//! The weights of inputs that layers have of their own, and layers' factors.

use super::{LayerWeights, Packer, names};
use crate::arch::{Blueprint, Extra};
use crate::load::LoadError;
use crate::work::Linear;
use duet_kernels::packed::PackedMatrix;

/// By what rows' embeddings become inputs of all layers.
#[derive(Debug)]
pub(crate) struct InputWeights {
    pub(crate) matrix: PackedMatrix,
    /// Of each layer's input, in units of [`INPUT_SCALE`].
    pub(crate) norm: Vec<f32>,
}

/// By what a layer adds its input to the residual stream.
#[derive(Debug)]
pub(crate) struct LayerInput {
    pub(crate) gate: PackedMatrix,
    pub(crate) projection: PackedMatrix,
    pub(crate) norm: Vec<f32>,
}

/// What is made of the embedding and what is made of the token are added, and multiplied with this.
pub(crate) const INPUT_SCALE: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// What a token's row has of its inputs is multiplied with this.
pub(crate) fn token_scale(width: usize) -> f32 {
    (width as f32).sqrt()
}

/// What is added to the mean square of an input that is made of an embedding: its product is divided by the root of the
/// embedding's width, which the norm takes out again.
pub(crate) fn input_epsilon(b: &Blueprint) -> f32 {
    b.epsilon * b.hidden as f32
}

impl Packer<'_> {
    /// What makes the inputs of all layers, if they have any.
    pub(crate) fn inputs(&self) -> Result<Option<InputWeights>, LoadError> {
        let b = self.blueprint;
        let Some(width) = b.layer_input else { return Ok(None) };
        let matrix = self.whole(names::INPUTS, "per_layer_model_proj.weight", width * b.layers.len(), b.hidden)?;
        let mut norm = self.vector("per_layer_proj_norm.weight", width)?;
        norm.iter_mut().for_each(|x| *x *= INPUT_SCALE);
        Ok(Some(InputWeights { matrix, norm }))
    }

    /// What adds a layer's input, if it has one.
    pub(super) fn layer_input(&self, index: usize) -> Result<Option<LayerInput>, LoadError> {
        let b = self.blueprint;
        let Some(width) = b.layer_input else { return Ok(None) };
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        Ok(Some(LayerInput {
            gate: self.whole(&names::input_gate(index), &name("inp_gate"), width, b.hidden)?,
            projection: self.whole(&names::input_projection(index), &name("proj"), b.hidden, width)?,
            norm: self.vector(&name("post_norm"), b.hidden)?,
        }))
    }

    /// What the residual stream behind a layer is multiplied with.
    pub(super) fn layer_scale(&self, index: usize) -> Result<Option<f32>, LoadError> {
        let has = self.blueprint.has(Extra::LayerScales);
        let scale = || Ok(self.vector(&format!("blk.{index}.layer_output_scale.weight"), 1)?[0]);
        has.then(scale).transpose()
    }

    fn whole(&self, packed: &str, name: &str, outputs: usize, inputs: usize) -> Result<PackedMatrix, LoadError> {
        self.pack(packed, &[super::parts::Part::whole(self.matrix(name, outputs, inputs)?)])
    }
}

impl LayerInput {
    /// Its matrices, each under the name that it is packed by.
    pub(super) fn matrices(&self, layer: usize) -> [(String, &PackedMatrix); 2] {
        [(names::input_gate(layer), &self.gate), (names::input_projection(layer), &self.projection)]
    }

    pub(super) fn has_floats(&self) -> bool {
        self.gate.has_floats() || self.projection.has_floats()
    }
}

impl LayerWeights {
    /// What adding its input computes and reads.
    pub(super) fn input_work(&self) -> Linear {
        let Some(LayerInput { gate, projection, .. }) = &self.input else { return Linear::NOTHING };
        let (gate, projection) = (Linear::of(gate), Linear::of(projection));
        Linear {
            macs: gate.macs + projection.macs,
            bytes: duet_types::Bytes(gate.bytes.0 + projection.bytes.0),
            routed: None,
        }
    }
}
