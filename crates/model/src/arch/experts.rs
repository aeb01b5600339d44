//! What a file says of its experts, checked: how many, how many a row goes to, how wide.

use super::Facts;
use crate::load::LoadError;
use duet_kernels::fused::Routing;

/// Experts in place of the feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertPlan {
    /// How many there are, the shared one not counted.
    pub count: usize,
    /// How many a row goes to, of them.
    pub chosen: usize,
    /// Width of each.
    pub ffn: usize,
    /// Width of the one that every row goes to, if there is one.
    pub shared: Option<usize>,
    /// Whether that one has a gate of its own; else it counts in full.
    pub shared_gate: bool,
    /// How scores become weights.
    pub routing: Routing,
}

impl ExpertPlan {
    /// Width of what a row goes through.
    #[must_use]
    pub fn active_ffn(&self) -> usize {
        self.chosen * self.ffn + self.shared.unwrap_or(0)
    }
}

/// Which setting holds the width of an expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpertWidth {
    /// `feed_forward_length`.
    FeedForward,
    /// `expert_feed_forward_length`; in files that lack it, the chosen ones together are `feed_forward_length` wide.
    OfItsOwn,
}

/// The experts that `{architecture}.expert_count` and the settings beside it describe.
pub(super) fn experts(facts: &Facts<'_>, width: ExpertWidth, routing: Routing) -> Result<ExpertPlan, LoadError> {
    let count = facts.number("expert_count")?;
    let chosen = facts.number("expert_used_count")?;
    if count > EXPERTS_MAX {
        return Err(facts.refuse("expert_count", format!("{count} experts, more than {EXPERTS_MAX}")));
    }
    if chosen > count {
        let problem = format!("each token goes to {chosen} experts, but there are {count}");
        return Err(facts.refuse("expert_used_count", problem));
    }
    let own = match width {
        ExpertWidth::FeedForward => Some(facts.number("feed_forward_length")?),
        ExpertWidth::OfItsOwn => facts.opt_number("expert_feed_forward_length")?,
    };
    let ffn = match own {
        Some(ffn) => ffn,
        None => {
            let whole = facts.number("feed_forward_length")?;
            if !whole.is_multiple_of(chosen) {
                let problem = format!("it is missing, and {whole} does not divide by the {chosen} chosen experts");
                return Err(facts.refuse("expert_feed_forward_length", problem));
            }
            whole / chosen
        }
    };
    Ok(ExpertPlan { count, chosen, ffn, shared: None, shared_gate: false, routing })
}

/// Routing by sigmoids as the settings beside say, the sum of weights having `least` added to it. Files that say nothing
/// have weights that sum to one.
pub(super) fn sigmoid(facts: &Facts<'_>, least: f32) -> Result<Routing, LoadError> {
    let scale = facts.opt_f32("expert_weights_scale")?.filter(|scale| *scale != 0.0).unwrap_or(1.0);
    if !scale.is_finite() {
        return Err(facts.refuse("expert_weights_scale", format!("{scale}")));
    }
    // As llama.cpp numbers these: softmax, then sigmoids.
    const SIGMOIDS: usize = 2;
    match facts.opt_count("expert_gating_func")? {
        None | Some(0 | SIGMOIDS) => {}
        Some(other) => {
            let problem = format!("routing {other} is not supported here (sigmoids, which are 2, are)");
            return Err(facts.refuse("expert_gating_func", problem));
        }
    }
    let divided = facts.opt_bool("expert_weights_norm")?.unwrap_or(true).then_some(least);
    Ok(Routing::Sigmoid { divided, scale })
}

/// More than any published model, few enough that a row's scores stay small.
const EXPERTS_MAX: usize = 4096;
