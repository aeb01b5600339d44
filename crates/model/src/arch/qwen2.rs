//! Qwen 2 and 2.5: as llama, with biases on the QKV projection.

use super::{Blueprint, Extra, Facts, RopePairs};
use crate::load::LoadError;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    Ok(Blueprint { extras: &[Extra::QkvBias], ..facts.common(RopePairs::Halves)? })
}
