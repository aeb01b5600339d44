//! Token recycling: drafts from what the model would have said in earlier requests. (Luo et al. 2024; ours under two
//! tokens as well as under one, with learned trust)
//!
//! Every row of logits that an answer needed names the likeliest few successors of its token. [Calibration] forgets
//! them with its request; here they stay, so that a request knows from its first token on how this model goes on after
//! common words, whatever its prompt holds.
//!
//! **Invariants:** memory is bounded by [`PAIRS`] and [`SINGLES`], whatever is learned; of two contexts that fall on one
//! place the later stays.
//!
//! [Calibration]: crate::calibration

use crate::drafter::Kind;
use crate::preferences::{Preferences, Remembers, pair};
use crate::successors::Successors;
use duet_types::TokenId;
use std::sync::Arc;

/// Places for successors under two tokens.
pub const PAIRS: usize = 1 << 14;
/// Places for successors under one token.
pub const SINGLES: usize = 1 << 13;

/// What the model would have said, of all requests that are drafted from each other.
#[derive(Clone, Debug, Default)]
pub struct Recycled {
    pairs: Places<PAIRS>,
    singles: Places<SINGLES>,
}

impl Recycled {
    /// The model would say one of `successors` after a text that ends with `context`.
    pub fn learn(&mut self, context: [TokenId; 2], successors: &Successors) {
        self.pairs.set(pair(context[0].0, context[1].0), successors);
        self.singles.set(u64::from(context[1].0), successors);
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pairs.bytes() + self.singles.bytes()
    }
}

/// Drafts from what was recycled when the request began.
pub(crate) type Recycling = Preferences<Arc<Recycled>>;

impl Remembers for Arc<Recycled> {
    const KIND: Kind = Kind::Recycled;

    fn successors(&self, before: u32, token: u32) -> [Option<&Successors>; 2] {
        [self.pairs.get(pair(before, token)), self.singles.get(u64::from(token))]
    }

    /// Shared by all that draft from it, and counted once, where it is kept.
    fn bytes(&self) -> usize {
        0
    }
}

/// A table of `N` places, a power of two, of which every key has one. Without memory until it is written to.
#[derive(Clone, Debug, Default)]
struct Places<const N: usize>(Vec<(u64, Successors)>);

impl<const N: usize> Places<N> {
    fn get(&self, key: u64) -> Option<&Successors> {
        let (known, successors) = self.0.get(Self::place(key))?;
        // A place that nothing was written to names no successor.
        (*known == key && successors.first().is_some()).then_some(successors)
    }

    fn set(&mut self, key: u64, successors: &Successors) {
        if self.0.is_empty() {
            self.0 = vec![(0, Successors::default()); N];
        }
        self.0[Self::place(key)] = (key, *successors);
    }

    /// By the upper bits of a multiplicative hash.
    fn place(key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - N.trailing_zeros())) as usize
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drafter::Drafter;
    use proptest::prelude::*;

    fn successors(first: u32) -> Successors {
        Successors::new(&[(TokenId(first), 3.0), (TokenId(first + 1), 2.0)])
    }

    fn first(recycled: &Recycled, text: [u32; 2]) -> Option<u32> {
        let mut recycling = Recycling::of(Arc::new(recycled.clone()));
        text.into_iter().for_each(|token| recycling.observe(TokenId(token)));
        let mut candidates = Vec::new();
        recycling.propose(recycling.end(), &mut candidates);
        candidates.first().map(|candidate| candidate.token.0)
    }

    #[test]
    fn what_follows_two_tokens_goes_before_what_follows_one() {
        let mut recycled = Recycled::default();
        assert_eq!((first(&recycled, [0, 0]), recycled.bytes()), (None, 0));
        recycled.learn([TokenId(1), TokenId(2)], &successors(10));
        recycled.learn([TokenId(5), TokenId(2)], &successors(20));
        assert_eq!(first(&recycled, [1, 2]), Some(10));
        assert_eq!(first(&recycled, [5, 2]), Some(20));
        assert_eq!(first(&recycled, [9, 2]), Some(20), "the latest after 2");
        assert_eq!(first(&recycled, [2, 9]), None);
        assert_eq!(first(&recycled, [0, 0]), None, "a place that nothing was written to is no token 0");
    }

    proptest! {
        /// What is proposed was learned, memory does not grow, and what was learned last is always known.
        #[test]
        fn memory_is_bounded_and_the_latest_is_known(
            learned in prop::collection::vec(any::<[u32; 3]>(), 1..200),
        ) {
            let mut recycled = Recycled::default();
            for &[before, token, next] in &learned {
                recycled.learn([TokenId(before), TokenId(token)], &successors(next / 2));
                prop_assert_eq!(first(&recycled, [before, token]), Some(next / 2));
                prop_assert!(recycled.bytes() <= (PAIRS + SINGLES) * size_of::<(u64, Successors)>());
            }
            let &[before, token, _] = &learned[0];
            let proposed = first(&recycled, [before, token]);
            let ever = |next| learned.iter().any(|known| known[1] == token && known[2] / 2 == next);
            prop_assert!(proposed.is_none_or(ever));
        }
    }
}
