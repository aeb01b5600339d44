//! What a model would say next: the likeliest few tokens of one row of logits.

use duet_types::TokenId;

/// Successors that are kept of a row.
pub const SUCCESSORS: usize = 4;

/// The likeliest tokens after some text, likeliest first, and how far each logit is below the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Successors {
    tokens: [TokenId; SUCCESSORS],
    below: [f32; SUCCESSORS],
    len: u8,
}

impl Successors {
    /// The first of `likeliest`, which is sorted.
    #[must_use]
    pub fn new(likeliest: &[(TokenId, f32)]) -> Self {
        let mut successors = Self::default();
        let largest = likeliest.first().map_or(0.0, |first| first.1);
        for (index, &(token, logit)) in likeliest.iter().take(SUCCESSORS).enumerate() {
            (successors.tokens[index], successors.below[index]) = (token, largest - logit);
            successors.len += 1;
        }
        successors
    }

    /// Likeliest first, with the distance of their logits.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, f32)> + use<> {
        let (tokens, below) = (self.tokens, self.below);
        (0..usize::from(self.len)).map(move |index| (tokens[index], below[index]))
    }

    /// The likeliest.
    #[must_use]
    pub fn first(&self) -> Option<TokenId> {
        self.iter().next().map(|(token, _)| token)
    }
}
