//! A set of tokens.

use duet_types::TokenId;
use llguidance::toktrie::SimpleVob;

/// The tokens that may come next: one bit for each.
#[derive(Clone)]
pub struct Mask {
    set: SimpleVob,
}

impl Mask {
    pub(super) fn new(set: SimpleVob) -> Self {
        Self { set }
    }

    /// Whether a token may come. Ids beyond the vocabulary may not.
    #[must_use]
    pub fn allows(&self, token: TokenId) -> bool {
        (token.0 as usize) < self.set.len() && self.set.is_allowed(token.0)
    }

    /// The bits, 32 ids a word, the lowest id in the lowest bit; bits beyond [`Self::vocabulary`] mean nothing.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        self.set.as_slice()
    }

    /// Tokens of the vocabulary, allowed or not.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.set.len()
    }

    /// How many tokens may come.
    #[must_use]
    pub fn count(&self) -> usize {
        self.set.num_set()
    }

    /// The tokens that may come, in ascending order.
    pub fn tokens(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.set.iter().map(TokenId)
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} of {})", self.count(), self.vocabulary())
    }
}

impl PartialEq for Mask {
    fn eq(&self, other: &Self) -> bool {
        self.vocabulary() == other.vocabulary() && self.tokens().eq(other.tokens())
    }
}
