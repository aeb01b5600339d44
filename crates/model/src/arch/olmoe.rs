//! OLMoE: as llama, but with experts, whose weights are their shares among all, and norms of queries and keys over the
//! whole width of their heads.

use super::experts::{ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::FeedForward, Routing::Softmax)?;
    let common = facts.common(RopePairs::Halves)?;
    Ok(Blueprint { experts: Some(experts), extras: &[Extra::WidthNorms], ..common })
}
