//! Drafts as the scheduler sees them: how likely their rows are to be right, and not which tokens they are.

use duet_types::Tokens;

/// The chance that a row of a draft is accepted, with all rows before it on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Chance(u16);

/// A draft as the scheduler sees it: the chances of its rows, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Offer(Vec<Chance>);

impl Chance {
    /// In thousandths, which is as exact as such a thing can be known.
    #[must_use]
    pub fn new(chance: f32) -> Self {
        Self((chance.clamp(0.0, 1.0) * 1000.0).round() as u16)
    }

    /// From 0 to 1: the tokens that the row is worth.
    #[must_use]
    pub fn tokens(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl Offer {
    /// A draft with these chances, which do not rise.
    ///
    /// # Panics
    /// If they do.
    #[must_use]
    pub fn new(chances: Vec<Chance>) -> Self {
        assert!(chances.is_sorted_by(|a, b| a >= b), "the best rows come first");
        Self(chances)
    }

    /// Nothing.
    pub const NONE: Self = Self(Vec::new());

    /// The chances of its rows.
    pub(crate) fn chances(&self) -> &[Chance] {
        &self.0
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> Tokens {
        Tokens(self.0.len() as u32)
    }

    /// Whether nothing is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
