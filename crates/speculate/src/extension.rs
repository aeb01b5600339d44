//! Draft extension: tokens of a rejected draft that may still be right are drafted again. (CoordGen §3.4, eq. 3 and
//! Table 2; sd.npu §4.4)
//!
//! A draft `x` is rejected at its first token that is not the model's. What the model would have said in the places that
//! follow, `y`, was computed all the same. The longest segment with `x_i = y_i` is the one that the model agrees with
//! once the misfit is past (words that were *missing*, or a *synonym*); it is proposed until it has been tried for its
//! lifetime. It is the longest first, as in the paper: only one segment is kept at a time.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place, Rejected};
use duet_types::TokenId;

/// Drafts what was rejected and may still be right.
#[derive(Clone, Debug, Default)]
pub struct Extension {
    segment: Vec<TokenId>,
    /// Tokens of the answer since it was kept.
    age: u32,
    /// The next token of the segment, while the answer follows it; 0 if it does not.
    end: u32,
}

/// Tokens of the answer for which a segment is proposed.
const LIFETIME: u32 = 8;
/// Shorter segments say nothing.
const SEGMENT_MIN: usize = 2;

impl Drafter for Extension {
    fn kind(&self) -> Kind {
        Kind::Extension
    }

    fn observe(&mut self, token: TokenId) {
        self.end = self.step(self.end(), token).0;
        // While the answer follows it, it does not get older.
        self.age += u32::from(self.end == 0);
        if self.age > LIFETIME {
            self.segment.clear();
        }
    }

    fn end(&self) -> Place {
        Place(self.end, self.age)
    }

    fn step(&self, Place(next, age): Place, token: TokenId) -> Place {
        let goes_on = |next: u32| self.segment.get(next as usize) == Some(&token);
        match next {
            _ if goes_on(next) => Place(next + 1, age),
            _ if goes_on(0) => Place(1, age),
            _ => Place(0, age + 1),
        }
    }

    fn propose(&self, Place(next, age): Place, candidates: &mut Vec<Candidate>) {
        if age > LIFETIME {
            return;
        }
        if let Some(&token) = self.segment.get(next as usize) {
            let followed = next.min(3) as u8;
            let evidence = if next > 0 { Evidence(10 + followed) } else { Evidence(1 + age as u8) };
            candidates.push(Candidate { token, evidence });
        }
    }

    fn rejected(&mut self, rejected: &Rejected<'_>) {
        let segment = longest_agreeing(rejected);
        if segment.len() >= SEGMENT_MIN {
            self.segment = segment.to_vec();
            (self.age, self.end) = (0, 0);
        }
    }

    fn bytes(&self) -> usize {
        self.segment.capacity() * size_of::<TokenId>()
    }
}

/// Equation 3: the longest segment of a rejected draft on which draft and model agree; of equals the first.
#[must_use]
pub fn longest_agreeing<'a>(rejected: &Rejected<'a>) -> &'a [TokenId] {
    let drafted = rejected.drafted;
    let agrees = |index: usize| rejected.predicted.get(index) == Some(&drafted[index]);
    let (mut best, mut start) = (0..0, 0);
    for index in 0..drafted.len() {
        if !agrees(index) {
            start = index + 1;
        } else if index + 1 - start > best.len() {
            best = start..index + 1;
        }
    }
    &drafted[best]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(byte.into())).collect()
    }

    fn longest(drafted: &str, predicted: &str) -> String {
        let (drafted, predicted) = (tokens(drafted), tokens(predicted));
        let segment = longest_agreeing(&Rejected { drafted: &drafted, predicted: &predicted }).to_vec();
        segment.into_iter().map(|token| token.0 as u8 as char).collect()
    }

    #[test]
    fn equation_three_keeps_the_longest_agreeing_segment() {
        assert_eq!(longest("abcdef", "xbcxef"), "bc");
        assert_eq!(longest("abcdef", "xbxdef"), "def");
        assert_eq!(longest("abcd", "xxxx"), "");
        assert_eq!(longest("abcd", "x"), "");
    }

    /// After "Clinton's security" was rejected for "Clinton arrived", "at Des Moines" comes all the same.
    #[test]
    fn a_kept_segment_is_proposed_until_it_is_too_old() {
        let mut extension = Extension::default();
        extension.rejected(&Rejected { drafted: &tokens("sdes"), predicted: &tokens("xdes") });
        let first = |extension: &Extension, place| {
            let mut candidates = Vec::new();
            extension.propose(place, &mut candidates);
            candidates.first().map(|candidate| candidate.token.0 as u8 as char)
        };
        assert_eq!(first(&extension, extension.end()), Some('d'));
        extension.observe(TokenId(b'd'.into()));
        assert_eq!(first(&extension, extension.end()), Some('e'));
        for _ in 0..=LIFETIME {
            extension.observe(TokenId(b'!'.into()));
        }
        assert_eq!(first(&extension, extension.end()), None);
    }
}
