//! Qwen 3 with experts: their weights sum to one.

use super::experts::{ExpertWidth, experts};
use super::{Blueprint, Extra, Facts, RopePairs};
use crate::load::LoadError;
use duet_kernels::fused::Routing;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let experts = experts(facts, ExpertWidth::OfItsOwn, Routing::SoftmaxOfChosen)?;
    let common = facts.common(RopePairs::Halves)?;
    Ok(Blueprint { experts: Some(experts), extras: &[Extra::HeadNorms], ..common })
}
