//! Llama 2 and 3, SmolLM, Mistral and others of their shape.

use super::{Blueprint, Facts, RopePairs};
use crate::load::LoadError;

/// Files of this architecture pair neighbouring dimensions in rope.
pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    facts.common(RopePairs::Neighbours)
}
