//! Gemma 3 (text): five layers with a sliding window for each that sees everything, four norms a layer.

use super::{Blueprint, Extra, Facts, LayerPlan, RopePairs};
use crate::load::LoadError;
use duet_kernels::matmul::Gating;

/// Local layers turn by their own base, and never stretch positions.
const LOCAL_THETA: f32 = 10_000.0;

/// One layer in so many sees the whole context.
const PATTERN: usize = 6;

/// The 27B model alone scales attention by its width per head instead of its head dimension.
const LAYERS_27B: usize = 62;

pub(super) fn blueprint(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let common = facts.common(RopePairs::Halves)?;
    let global = match facts.opt_f32("rope.freq_base")? {
        Some(_) => common.ropes[0].clone(),
        None => facts.rope(1e6, facts.linear_scale()?, None)?,
    };
    let local = facts.rope(facts.opt_f32("rope.freq_base_swa")?.unwrap_or(LOCAL_THETA), 1.0, None)?;
    let window = facts.opt_number("attention.sliding_window")?;
    let pattern = facts.opt_number("attention.sliding_window_pattern")?.unwrap_or(PATTERN);
    let layer = |index: usize| match window {
        Some(window) if !(index + 1).is_multiple_of(pattern) => {
            LayerPlan { window: Some(window), rope: 1, ..LayerPlan::ATTENTION }
        }
        _ => LayerPlan::ATTENTION,
    };
    let layers = common.layers.len();
    let per_head = if layers == LAYERS_27B { common.hidden / common.heads } else { common.head_dim };
    Ok(Blueprint {
        embedding_scale: (common.hidden as f32).sqrt(),
        attention_scale: 1.0 / (per_head as f32).sqrt(),
        gating: Gating::GeluTanh,
        ropes: vec![global, local],
        layers: (0..layers).map(layer).collect(),
        extras: &[Extra::HeadNorms, Extra::PostNorms],
        ..common
    })
}
