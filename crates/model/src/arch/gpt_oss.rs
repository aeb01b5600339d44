//! gpt-oss: experts with biases and a clamped gate, whose weights sum to one; sinks in attention, biases of all its
//! projections, and a window in every other layer, the first one among them.

use super::experts::{ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, LayerPlan, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;
use duet_kernels::matmul::Gating;

/// One layer in so many sees the whole context.
const PATTERN: usize = 2;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::OfItsOwn, Routing::SoftmaxOfChosen)?;
    let common = facts.common(RopePairs::Halves)?;
    let rope = if facts.is_yarn()? { facts.yarn()? } else { common.ropes[0].clone() };
    let window = facts.window()?;
    let local = |index: usize| window.filter(|_| !(index + 1).is_multiple_of(PATTERN));
    let layer = |index: usize| LayerPlan { window: local(index), ..LayerPlan::ATTENTION };
    Ok(Blueprint {
        experts: Some(experts),
        gating: Gating::ClampedSwish,
        ropes: vec![rope],
        layers: (0..common.layers.len()).map(layer).collect(),
        extras: &[Extra::QkvBias, Extra::OutputBias, Extra::NormBehindAttention, Extra::Sinks, Extra::ExpertBiases],
        ..common
    })
}
