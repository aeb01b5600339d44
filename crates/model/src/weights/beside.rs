//! The weights of a dense block with experts beside it, but for their matrices.

use super::Packer;
use crate::arch::{ExpertPlan, Extra};
use crate::load::LoadError;

/// Their norms, and what experts' weights are multiplied with.
#[derive(Debug)]
pub(crate) struct BesideWeights {
    /// Before the block.
    pub(crate) before: Vec<f32>,
    pub(crate) of_block: Vec<f32>,
    pub(crate) of_experts: Vec<f32>,
    pub(crate) of_both: Vec<f32>,
    /// Of each expert.
    pub(crate) factors: Vec<f32>,
}

impl Packer<'_> {
    /// Those of layer `index`, if its experts stand beside a block.
    pub(super) fn beside(&self, index: usize, plan: ExpertPlan) -> Result<Option<BesideWeights>, LoadError> {
        let b = self.blueprint;
        if !b.has(Extra::BlockBeside) {
            return Ok(None);
        }
        let norm = |part: &str| self.vector(&format!("blk.{index}.{part}.weight"), b.hidden);
        Ok(Some(BesideWeights {
            before: norm("ffn_norm")?,
            of_block: norm("post_ffw_norm_1")?,
            of_experts: norm("post_ffw_norm_2")?,
            of_both: norm("post_ffw_norm")?,
            factors: self.vector(&format!("blk.{index}.ffn_down_exps.scale"), plan.count)?,
        }))
    }

    /// The router of layer `index`. One that sees the residual stream scaled has the scale in its weights.
    pub(super) fn router(&self, index: usize, plan: ExpertPlan) -> Result<Vec<f32>, LoadError> {
        let b = self.blueprint;
        let mut router = self.floats(&format!("blk.{index}.ffn_gate_inp.weight"), plan.count, b.hidden)?;
        if b.has(Extra::BlockBeside) {
            let mut scale = self.vector(&format!("blk.{index}.ffn_gate_inp.scale"), b.hidden)?;
            let root = (b.hidden as f32).sqrt();
            scale.iter_mut().for_each(|scale| *scale /= root);
            let rows = router.chunks_exact_mut(b.hidden).flatten();
            rows.zip(scale.iter().cycle()).for_each(|(weight, scale)| *weight *= scale);
        }
        Ok(router)
    }

    /// What the names of a shared expert's tensors end in.
    pub(super) fn shared_suffix(&self) -> &'static str {
        if self.blueprint.has(Extra::BlockBeside) { "" } else { super::names::SHARED }
    }
}
