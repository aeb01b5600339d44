//! Llama 2 and 3, SmolLM, Mistral and others of their shape; with experts, Mixtral.

use super::experts::{ExpertWidth, experts};
use super::{Blueprint, Facts, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;

/// Files of this architecture pair neighbouring dimensions in rope.
pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Neighbours)?;
    if !facts.has_experts()? {
        return Ok(common);
    }
    let experts = experts(facts, ExpertWidth::FeedForward, Routing::SoftmaxOfChosen)?;
    Ok(Blueprint { experts: Some(experts), ..common })
}
