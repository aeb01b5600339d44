//! LFM 2: short convolutions in most layers, attention with norms of each head in the others; with experts, a few dense
//! layers first, then experts that are chosen by sigmoids and a bias.

use super::experts::{ExpertWidth, experts, sigmoid};
use super::{Blueprint, Extra, Facts, LayerPlan, Mixer, Recurrent, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::TAPS_MAX;

/// Added to the sum of weights before they are divided by it.
const SUM_LEAST: f32 = 1e-6;

pub(super) fn dense(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Halves)?;
    let taps = facts.number("shortconv.l_cache")?;
    if !(2..=TAPS_MAX).contains(&taps) {
        return Err(facts.refuse("shortconv.l_cache", format!("{taps} taps; supported: 2 to {TAPS_MAX}")));
    }
    let (heads, hidden) = (common.heads * common.head_dim, common.hidden);
    if heads != hidden || !hidden.is_multiple_of(16) {
        let problem =
            format!("heads of {heads} dimensions in all, and a width of {hidden}: equal multiples of 16 are supported");
        return Err(facts.refuse("embedding_length", problem));
    }
    let mixer = |heads: &u32| if *heads > 0 { Mixer::Attention } else { Mixer::Recurrent };
    let layers: Vec<LayerPlan> = facts
        .kv_heads_of_layers()?
        .iter()
        .map(|heads| LayerPlan { mixer: mixer(heads), ..LayerPlan::ATTENTION })
        .collect();
    // Files before the norm was named as in others.
    let is_old = facts.has_tensor("token_embd_norm.weight");
    let extras: &[Extra] = if is_old { &[Extra::HeadNorms, Extra::NormOfEmbeddings] } else { &[Extra::HeadNorms] };
    Ok(Blueprint { layers, recurrent: Some(Recurrent::ShortConvolution { taps }), extras, ..common })
}

pub(super) fn with_experts(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::OfItsOwn, sigmoid(facts, SUM_LEAST)?)?;
    let common = dense(facts)?;
    let dense_layers = facts.opt_count("leading_dense_block_count")?.unwrap_or(0).min(common.layers.len());
    let has_bias = facts.has_tensor(&format!("blk.{dense_layers}.exp_probs_b.bias"));
    let extras: &[Extra] = match (common.has(Extra::NormOfEmbeddings), has_bias) {
        (true, true) => &[Extra::HeadNorms, Extra::NormOfEmbeddings, Extra::ChoiceBias],
        (false, true) => &[Extra::HeadNorms, Extra::ChoiceBias],
        (_, false) => common.extras,
    };
    Ok(Blueprint { experts: Some(experts), dense_layers, extras, ..common })
}
