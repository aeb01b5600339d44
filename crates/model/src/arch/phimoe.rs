//! Phi's experts (Phi-3.5-MoE, Phi-tiny-MoE): two a token, chosen by a sparse mixer; layer norms, and biases wherever a
//! matrix is multiplied but in the experts.
//!
//! Files whose rope was trained for a short context and stretched to a long one have factors for each. Which are right
//! depends on how long a sequence becomes, and keys that are in the cache cannot be turned again: duet takes the short
//! ones, and the context that they are for.

use super::experts::{ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, LayerPlan, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;

/// What Phi's routers were trained with; files do not say it.
const JITTER: f32 = 0.01;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::FeedForward, Routing::SparseMixer { jitter: JITTER })?;
    let common = facts.common(RopePairs::Halves)?;
    let (rope, context) = match facts.short_rope()? {
        None => (common.ropes[0].clone(), common.context),
        Some(short) => (short, facts.opt_number("rope.scaling.original_context_length")?.unwrap_or(common.context)),
    };
    let window = facts.opt_number("attention.sliding_window")?;
    Ok(Blueprint {
        experts: Some(experts),
        extras: &[Extra::QkvBias, Extra::OutputBias, Extra::HeadBias, Extra::LayerNorms],
        context: context.min(common.context),
        ropes: vec![rope],
        layers: vec![LayerPlan { window, rope: 0 }; common.layers.len()],
        ..common
    })
}
