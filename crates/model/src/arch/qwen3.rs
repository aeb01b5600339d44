//! Qwen 3 (dense): as llama, with norms on each query and key head.

use super::{Blueprint, Extra, Facts, RopePairs};
use crate::load::LoadError;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    Ok(Blueprint { extras: &[Extra::HeadNorms], ..facts.common(RopePairs::Halves)? })
}
