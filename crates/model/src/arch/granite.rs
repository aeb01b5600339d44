//! Granite: llama whose embeddings, attention scores, layers' results and logits are multiplied with settings of their own; with
//! experts, and Granite 4, where most layers have a Mamba 2 in attention's place, and some attention without rope.

use super::experts::{ExpertPlan, ExpertWidth, experts};
use super::{Blueprint, Facts, LayerPlan, Mixer, Recurrent, Rope, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::{RecurrenceShape, Routing, Rule, Sharing, TAPS_MAX};

/// Dense.
pub(super) fn dense(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Neighbours)?;
    let scale = |name: &str| {
        // Files say zero for none.
        let scale = facts.opt_f32(name)?.filter(|scale| *scale != 0.0);
        match scale {
            Some(scale) if !(SCALE_LEAST..=1.0 / SCALE_LEAST).contains(&scale) => {
                Err(facts.refuse(name, format!("{scale} is no factor")))
            }
            _ => Ok(scale),
        }
    };
    let ropes = if facts.opt_bool("rope.scaling.finetuned")?.unwrap_or(true) {
        common.ropes
    } else {
        let still = |rope: &Rope| Rope { frequencies: vec![0.0; rope.frequencies.len()], magnitude: 1.0 };
        common.ropes.iter().map(still).collect()
    };
    Ok(Blueprint {
        embedding_scale: scale("embedding_scale")?.unwrap_or(1.0),
        residual_scale: scale("residual_scale")?.unwrap_or(1.0),
        attention_scale: scale("attention.scale")?.unwrap_or(common.attention_scale),
        logit_scale: 1.0 / scale("logit_scale")?.unwrap_or(1.0),
        ropes,
        ..common
    })
}

/// With experts, and one that all tokens go to, in files that have it.
pub(super) fn with_experts(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::FeedForward, Routing::SoftmaxOfChosen)?;
    let shared = facts.opt_count("expert_shared_feed_forward_length")?.filter(|width| *width > 0);
    let shared = shared.map(|_| facts.number("expert_shared_feed_forward_length")).transpose()?;
    Ok(Blueprint { experts: Some(ExpertPlan { shared, shared_gate: false, ..experts }), ..dense(facts)? })
}

/// Granite 4: layers without key heads have a Mamba 2.
pub(super) fn hybrid(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = if facts.has_experts()? { with_experts(facts)? } else { dense(facts)? };
    let (heads, width) = (facts.number("ssm.time_step_rank")?, facts.number("ssm.inner_size")?);
    let (keys, taps) = (facts.number("ssm.state_size")?, facts.number("ssm.conv_kernel")?);
    let groups = facts.number("ssm.group_count")?;
    if groups != 1 {
        return Err(facts.refuse("ssm.group_count", format!("{groups} groups of keys; one is supported")));
    }
    if !(2..=TAPS_MAX).contains(&taps) {
        return Err(facts.refuse("ssm.conv_kernel", format!("{taps} taps; supported: 2 to {TAPS_MAX}")));
    }
    let is_whole = |dims: usize| (DIMS_LEAST..=DIMS_MAX).contains(&dims) && dims.is_multiple_of(DIMS_LEAST);
    if !width.is_multiple_of(heads) || !is_whole(keys) || !is_whole(width / heads) {
        let problem = format!(
            "states of {keys}, {width} dimensions in {heads} heads; supported: multiples of {DIMS_LEAST} to {DIMS_MAX}"
        );
        return Err(facts.refuse("ssm.state_size", problem));
    }
    let values = width / heads;
    let shape =
        RecurrenceShape { rule: Rule::Sum, key_heads: 1, heads, keys, values, sharing: Sharing::Neighbours, taps };
    let mixer = |heads: &u32| if *heads > 0 { Mixer::Attention } else { Mixer::Recurrent };
    let layers = facts.kv_heads_of_layers()?;
    let layers = layers.iter().map(|heads| LayerPlan { mixer: mixer(heads), ..LayerPlan::ATTENTION }).collect();
    Ok(Blueprint { layers, recurrent: Some(Recurrent::Matrices(shape)), ..common })
}

/// Factors are within this and its inverse, so that what is divided by their squares stays finite.
const SCALE_LEAST: f32 = 1e-6;

/// Dimensions of states, and of heads.
const DIMS_LEAST: usize = 16;
/// More than any published model has.
const DIMS_MAX: usize = 256;
