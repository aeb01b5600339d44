//! Phi 3 and 4, Phi-4-mini: as llama, with one tensor for queries, keys and values and one for gates and what they gate;
//! some turn a part of each head only, and some were stretched to a long context.

use super::longrope::stretched;
use super::{Blueprint, Facts, LayerPlan, RopePairs};
use crate::load::LoadError;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Halves)?;
    let layers = vec![LayerPlan { window: facts.window()?, ..LayerPlan::ATTENTION }; common.layers.len()];
    stretched(facts, Blueprint { layers, ..common })
}
