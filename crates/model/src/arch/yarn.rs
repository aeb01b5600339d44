//! YaRN: rope for a context that is longer than the one a model was trained for first (Peng et al., 2023).
//!
//! Pairs that turn often within the first context keep their frequency, pairs that turn less than once are slowed down as
//! much as the context has grown, and those between are blended. Rotated dimensions are a little longer, so that attention
//! is as sharp over more positions.

use super::{Facts, Rope};
use crate::load::LoadError;

/// Turns within the first context from which on a pair keeps its frequency, and below which it is slowed down.
const TURNS: [f32; 2] = [32.0, 1.0];

/// Where the bands of pairs that are kept, blended and slowed down begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BandEnds {
    /// At whole pairs.
    Whole,
    /// As they are computed (gpt-oss).
    Exact,
}

/// The settings of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yarn {
    /// How many times as long the context is.
    factor: f64,
    /// Positions of the first context.
    original: f64,
    /// Turns, as [`TURNS`].
    turns: [f64; 2],
    /// What rotated dimensions are multiplied with, beside what follows from the factor.
    magnitude: f64,
}

impl Yarn {
    /// Reads them.
    pub(super) fn read(facts: &Facts<'_>) -> Result<Self, LoadError> {
        let number = |name: &str, default: Option<f32>| {
            let value = facts.opt_f32(name)?.or(default).unwrap_or(f32::NAN);
            if value.is_finite() && value > 0.0 {
                Ok(f64::from(value))
            } else {
                Err(facts.refuse(name, "YaRN needs a number above zero".to_owned()))
            }
        };
        // A file that does not say was stretched from where it stands.
        let original = match facts.opt_number("rope.scaling.original_context_length")? {
            None => facts.number("context_length")?,
            Some(_) => facts.number("rope.scaling.original_context_length")?,
        } as f64;
        let fast = number("rope.scaling.yarn_beta_fast", Some(TURNS[0]))?;
        let slow = number("rope.scaling.yarn_beta_slow", Some(TURNS[1]))?;
        Ok(Self {
            factor: number("rope.scaling.factor", None)?,
            original,
            turns: [fast, slow],
            magnitude: number("rope.scaling.attn_factor", Some(1.0))?,
        })
    }

    /// The rope over `dims` dimensions with this base.
    pub(super) fn rope(&self, theta: f32, dims: usize, ends: BandEnds) -> Rope {
        let (theta, dims) = (f64::from(theta), dims as f64);
        // Which pair turns so many times within the first context.
        let pair_of = |turns: f64| dims * (self.original / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
        let [low, high] = self.turns.map(pair_of);
        let (low, high) = match ends {
            BandEnds::Whole => (low.floor(), high.ceil()),
            BandEnds::Exact => (low, high),
        };
        let (low, high) = (low.max(0.0), high.min(dims - 1.0));
        let frequency = |pair: usize| {
            let plain = theta.powf(-2.0 * pair as f64 / dims);
            let slowed = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            (plain / self.factor * slowed + plain * (1.0 - slowed)) as f32
        };
        let magnitude = self.magnitude * (1.0 + 0.1 * self.factor.ln());
        Rope { frequencies: (0..dims as usize / 2).map(frequency).collect(), magnitude: magnitude as f32 }
    }
}
