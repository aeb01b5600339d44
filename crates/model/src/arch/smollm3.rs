//! SmolLM 3: as llama, but every fourth layer turns nothing by its position.

use super::{Blueprint, Facts, LayerPlan, Rope, RopePairs};
use crate::load::LoadError;

/// One layer in so many has no rope.
const PATTERN: usize = 4;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Neighbours)?;
    let turned = common.ropes[0].clone();
    let still = Rope { frequencies: vec![0.0; turned.frequencies.len()], magnitude: 1.0 };
    let rope = |index: usize| usize::from((index + 1).is_multiple_of(PATTERN));
    let layer = |index: usize| LayerPlan { rope: rope(index), ..LayerPlan::ATTENTION };
    let layers = (0..common.layers.len()).map(layer).collect();
    Ok(Blueprint { ropes: vec![turned, still], layers, ..common })
}
