//! GLM 4.5 and later with experts: a few dense layers first, then experts that are chosen by sigmoids and a bias, and one
//! that all tokens go to; rope over a part of the head. Some have biases of queries, keys and values, some norms of each
//! query and key head.
//!
//! The last layers of a file predict further tokens. They are not read.

use super::experts::{ExpertPlan, ExpertWidth, experts, sigmoid};
use super::{Blueprint, Extra, Facts, RopePairs};
use crate::load::LoadError;

/// Added to the sum of weights before they are divided by it.
const SUM_LEAST: f32 = 1e-20;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::OfItsOwn, sigmoid(facts, SUM_LEAST)?)?;
    let shared = facts.opt_count("expert_shared_count")?.unwrap_or(0);
    let shared = shared.checked_mul(experts.ffn).filter(|width| *width <= SHARED_MAX);
    let shared = shared.ok_or_else(|| facts.refuse("expert_shared_count", "too many".to_owned()))?;
    let common = facts.common(RopePairs::Halves)?;
    let predicting = facts.opt_count("nextn_predict_layers")?.unwrap_or(0);
    if predicting >= common.layers.len() {
        return Err(facts.refuse("nextn_predict_layers", format!("{predicting} of {} layers", common.layers.len())));
    }
    let layers = common.layers[predicting..].to_vec();
    Ok(Blueprint {
        experts: Some(ExpertPlan { shared: (shared > 0).then_some(shared), shared_gate: false, ..experts }),
        dense_layers: facts.opt_count("leading_dense_block_count")?.unwrap_or(0).min(layers.len()),
        layers,
        extras: match (facts.has_tensor("blk.0.attn_q.bias"), facts.has_tensor("blk.0.attn_q_norm.weight")) {
            (true, true) => &[NORM, CHOICE, Extra::QkvBias, Extra::HeadNorms],
            (true, false) => &[NORM, CHOICE, Extra::QkvBias],
            (false, true) => &[NORM, CHOICE, Extra::HeadNorms],
            (false, false) => &[NORM, CHOICE],
        },
        ..common
    })
}

/// Wider than any published model's.
const SHARED_MAX: usize = 1 << 20;

const NORM: Extra = Extra::NormBehindAttention;
const CHOICE: Extra = Extra::ChoiceBias;
