//! Qwen3-Next: gated delta nets in most layers, attention with gates of what it finds in the others; experts in all, and one
//! that all tokens go to by a gate of its own.

use super::experts::{ExpertPlan, ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, LayerPlan, Mixer, Recurrent, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::{RecurrenceShape, Routing, Rule, Sharing, TAPS_MAX};

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let blueprint = delta_net(facts, Sharing::Neighbours, 0)?;
    Ok(Blueprint { experts: Some(with_shared_expert(facts)?), ..blueprint })
}

/// Experts whose weights sum to one, and the shared one.
pub(super) fn with_shared_expert(facts: &Facts<'_>) -> Result<ExpertPlan, LoadError> {
    let experts = experts(facts, ExpertWidth::OfItsOwn, Routing::SoftmaxOfChosen)?;
    let shared = match facts.opt_number("expert_shared_feed_forward_length")? {
        Some(shared) => shared,
        None => facts.number("feed_forward_length")?,
    };
    Ok(ExpertPlan { shared: Some(shared), shared_gate: true, ..experts })
}

/// The layers but the last `unread` ones, and what they have in common.
pub(super) fn delta_net(facts: &Facts<'_>, sharing: Sharing, unread: usize) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Halves)?;
    let (key_heads, heads) = (facts.number("ssm.group_count")?, facts.number("ssm.time_step_rank")?);
    let (keys, width) = (facts.number("ssm.state_size")?, facts.number("ssm.inner_size")?);
    let taps = facts.number("ssm.conv_kernel")?;
    if !(2..=TAPS_MAX).contains(&taps) {
        return Err(facts.refuse("ssm.conv_kernel", format!("{taps} taps; supported: 2 to {TAPS_MAX}")));
    }
    if !heads.is_multiple_of(key_heads) {
        let problem = format!("{heads} heads of values do not divide by {key_heads} of keys");
        return Err(facts.refuse("ssm.time_step_rank", problem));
    }
    if !(DIMS_LEAST..=DIMS_MAX).contains(&keys) || !keys.is_multiple_of(DIMS_LEAST) || width != heads * keys {
        let problem = format!(
            "keys of {keys} dimensions, values of {width} in {heads} heads; supported: equal multiples of {DIMS_LEAST} \
             to {DIMS_MAX}"
        );
        return Err(facts.refuse("ssm.state_size", problem));
    }
    let layers = common.layers.len().checked_sub(unread).filter(|layers| *layers > 0).unwrap_or_default();
    let interval = facts.opt_number("full_attention_interval")?.unwrap_or(INTERVAL);
    if interval > layers {
        let problem = format!("{interval} of {layers} layers, so that none has attention");
        return Err(facts.refuse("full_attention_interval", problem));
    }
    let mixer = |layer: usize| if (layer + 1).is_multiple_of(interval) { Mixer::Attention } else { Mixer::Recurrent };
    let shape = RecurrenceShape { rule: Rule::Delta, key_heads, heads, keys, values: keys, sharing, taps };
    Ok(Blueprint {
        layers: (0..layers).map(|layer| LayerPlan { mixer: mixer(layer), ..LayerPlan::ATTENTION }).collect(),
        recurrent: Some(Recurrent::Matrices(shape)),
        extras: &[Extra::HeadNorms, Extra::OutputGate, Extra::NormBehindAttention],
        ..common
    })
}

/// One layer in so many has attention, where a file does not say.
const INTERVAL: usize = 4;

/// Dimensions of a delta net's keys and values.
const DIMS_LEAST: usize = 16;
/// More than any published model has.
const DIMS_MAX: usize = 256;
