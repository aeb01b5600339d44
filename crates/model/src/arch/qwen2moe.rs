//! Qwen 2 with experts, whose weights are their shares among all, and a shared one with a gate of its own.

use super::experts::{ExpertPlan, ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::OfItsOwn, Routing::Softmax)?;
    let shared = match facts.opt_number("expert_shared_feed_forward_length")? {
        Some(shared) => shared,
        None => facts.number("feed_forward_length")?,
    };
    let experts = ExpertPlan { shared: Some(shared), shared_gate: true, ..experts };
    let common = facts.common(RopePairs::Halves)?;
    Ok(Blueprint { experts: Some(experts), extras: &[Extra::QkvBias], ..common })
}
