//! LongRoPE: factors for a long context beside those of the short one that a model was trained for first (Ding et al., 2024).
//!
//! Which are right depends on how long a sequence becomes, and keys that are in the cache cannot be turned again: so all
//! sequences are turned alike, by the factors of the context that is wanted. Where nobody said how long that is, it is the
//! file's, with the long factors; whoever wants no more than the first context gets the short ones, and that context.

use super::{Blueprint, Facts, Rope};
use crate::load::LoadError;

/// The blueprint with the factors of the file, if it has any.
pub(super) fn stretched(facts: &Facts<'_>, common: Blueprint) -> Result<Blueprint, LoadError> {
    let short = facts.factors("rope_factors_short.weight")?;
    let long = facts.factors("rope_factors_long.weight")?;
    let original = facts.opt_number("rope.scaling.original_context_length")?.unwrap_or(common.context);
    let is_long = facts.wanted_context() > original;
    let Some(factors) = (if is_long { long.or(short) } else { short }) else { return Ok(common) };
    let theta = facts.opt_f32("rope.freq_base")?.unwrap_or(10_000.0);
    let magnitude = facts.opt_f32("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if !(magnitude.is_finite() && magnitude > 0.0) {
        return Err(facts.refuse("rope.scaling.attn_factor", format!("{magnitude}")));
    }
    let rope = Rope { magnitude, ..facts.rope(theta, 1.0, Some(factors))? };
    let context = if is_long { common.context } else { common.context.min(original) };
    Ok(Blueprint { ropes: vec![rope], context, ..common })
}
