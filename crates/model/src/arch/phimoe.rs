//! Phi's experts (Phi-3.5-MoE, Phi-tiny-MoE): two a token, chosen by a sparse mixer; layer norms, and biases wherever a
//! matrix is multiplied but in the experts.

use super::experts::{ExpertWidth, experts};
use super::longrope::stretched;
use super::{Blueprint, Extra, Facts, LayerPlan, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;

/// What Phi's routers were trained with; files do not say it.
const JITTER: f32 = 0.01;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::FeedForward, Routing::SparseMixer { jitter: JITTER })?;
    let common = facts.common(RopePairs::Halves)?;
    stretched(
        facts,
        Blueprint {
            experts: Some(experts),
            extras: &[Extra::QkvBias, Extra::OutputBias, Extra::HeadBias, Extra::LayerNorms],
            layers: vec![LayerPlan { window: facts.window()?, ..LayerPlan::ATTENTION }; common.layers.len()],
            ..common
        },
    )
}
