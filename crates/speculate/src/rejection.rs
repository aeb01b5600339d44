//! Why a draft was rejected, and whether a part of it was right after all. (CoordGen §3.4 and Table 2; sd.npu §4.4)
//!
//! The paper labels one user's rejections by hand. Here the cases are defined on tokens, so that they can be counted:
//! `x` is what was drafted from the first misfit on, and `z` is what the answer came to from there on, `x[0] ≠ z[0]`.
//! Two tokens in a row are the least that counts as the same words (the paper's `ε ≥ 1`), and they have to come within
//! [`DELAY_MAX`] tokens of the answer, for longer than that no draft is kept:
//!
//! - *missing*: the answer has tokens more, and then goes on as drafted: `x[0..2]` is in `z`, from its second token on;
//! - *synonym*: the answer has other tokens in the place of the first `γ ≥ 1` drafted ones, and then goes on as drafted:
//!   `x[γ..γ + 2]` is in `z`, from its second token on, and it is not missing;
//! - *redundant*: neither.
//!
//! Meaning is not looked at: a misfit that is no synonym, but after which the answer goes on as drafted, counts as one.

use duet_types::TokenId;
use std::ops::AddAssign;

/// The cases of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// The draft lacks words of the answer.
    Missing,
    /// The answer says some of it in other words.
    Synonym,
    /// Nothing of it was of use.
    Redundant,
}

/// How often each was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejections {
    counts: [u64; 3],
}

/// Tokens of the answer after which a draft is of use no more: for as long is a rejected segment
/// [proposed](crate::extension).
pub const DELAY_MAX: usize = 8;
/// Tokens in a row that are the same words.
const SEGMENT: usize = 2;

impl Rejection {
    /// All of them, as in the table.
    pub const ALL: [Self; 3] = [Self::Missing, Self::Synonym, Self::Redundant];

    /// What became of `drafted`, whose first token was not the answer's, where the answer went on as `answer`.
    #[must_use]
    pub fn of(drafted: &[TokenId], answer: &[TokenId]) -> Self {
        let later = &answer[1.min(answer.len())..answer.len().min(DELAY_MAX + SEGMENT)];
        let comes = |segment: &[TokenId]| later.windows(SEGMENT).any(|tokens| tokens == segment);
        match drafted.windows(SEGMENT).position(comes) {
            Some(0) => Self::Missing,
            Some(_) => Self::Synonym,
            None => Self::Redundant,
        }
    }
}

impl Rejections {
    /// One more.
    pub fn add(&mut self, rejection: Rejection) {
        self.counts[rejection as usize] += 1;
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many of a kind.
    #[must_use]
    pub fn count(&self, rejection: Rejection) -> u64 {
        self.counts[rejection as usize]
    }
}

impl AddAssign for Rejections {
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters are tokens.
    fn of(drafted: &str, answer: &str) -> Rejection {
        let tokens = |text: &str| text.bytes().map(|byte| TokenId(u32::from(byte))).collect::<Vec<_>>();
        Rejection::of(&tokens(drafted), &tokens(answer))
    }

    #[test]
    fn words_that_the_draft_lacks_are_missing() {
        assert_eq!(of("cat", "bigcat"), Rejection::Missing);
        assert_eq!(of("cat", "xcat"), Rejection::Missing);
        // Also if only its beginning comes.
        assert_eq!(of("cats", "xcap"), Rejection::Missing);
        // Missing words and then others: the first thing that came was right.
        assert_eq!(of("catdog", "xca.dog"), Rejection::Missing);
    }

    #[test]
    fn words_in_the_place_of_others_are_synonyms() {
        assert_eq!(of("carruns", "busruns"), Rejection::Synonym);
        assert_eq!(of("xruns", "longruns"), Rejection::Synonym);
        // As many tokens, and the rest where it was.
        assert_eq!(of("xab", "yab"), Rejection::Synonym);
    }

    #[test]
    fn what_does_not_come_again_is_redundant() {
        assert_eq!(of("abc", "xyz"), Rejection::Redundant);
        // One token alone says nothing.
        assert_eq!(of("abc", "xaybzc"), Rejection::Redundant);
        assert_eq!(of("a", "xa"), Rejection::Redundant);
        assert_eq!(of("", "x"), Rejection::Redundant);
        assert_eq!(of("ab", ""), Rejection::Redundant);
        // The order is part of it.
        assert_eq!(of("ab", "xba"), Rejection::Redundant);
    }

    #[test]
    fn what_comes_late_is_redundant() {
        assert_eq!(of("ab", "12345678ab"), Rejection::Missing);
        assert_eq!(of("ab", "123456789ab"), Rejection::Redundant);
    }

    #[test]
    fn cases_are_counted() {
        let mut rejections = Rejections::default();
        for case in [Rejection::Missing, Rejection::Redundant, Rejection::Redundant] {
            rejections.add(case);
        }
        rejections += rejections;
        assert_eq!(Rejection::ALL.map(|case| rejections.count(case)), [2, 0, 4]);
        assert_eq!(rejections.total(), 6);
    }
}
