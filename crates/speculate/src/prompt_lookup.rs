//! PLD: prompt lookup decoding. The last few tokens are looked for in the prompt and the answer so far, and what came
//! after them is the draft. (CoordGen §4.5: PLD drafts from the local context only; Saxena 2023)
//!
//! As published: the longest of 3, 2 or 1 tokens that is found, its first place. Found by a table of the first place of
//! each such group, so that a step costs the same at any length.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place};
use duet_types::TokenId;
use std::collections::BTreeMap;

/// Drafts what came after the same few tokens.
#[derive(Clone, Debug, Default)]
pub struct PromptLookup {
    tokens: Vec<TokenId>,
    /// Where the token after the first occurrence of a group is.
    after: BTreeMap<Group, u32>,
}

/// One to three tokens; the others are absent.
type Group = [Option<TokenId>; GROUP_MAX];
const GROUP_MAX: usize = 3;

impl PromptLookup {
    fn group(&self, end: usize, len: usize) -> Option<Group> {
        let tokens = self.tokens[..end].get(end.checked_sub(len)?..)?;
        let mut group = [None; GROUP_MAX];
        group.iter_mut().zip(tokens).for_each(|(slot, &token)| *slot = Some(token));
        Some(group)
    }
}

impl Drafter for PromptLookup {
    fn kind(&self) -> Kind {
        Kind::Context
    }

    fn observe(&mut self, token: TokenId) {
        let at = self.tokens.len();
        // What ends here is known to be followed by this token now.
        for group in (1..=GROUP_MAX).filter_map(|len| self.group(at, len)).collect::<Vec<_>>() {
            self.after.entry(group).or_insert(at as u32);
        }
        self.tokens.push(token);
    }

    /// The next token of the copy, and from how many tokens it was found.
    fn end(&self) -> Place {
        let found = (1..=GROUP_MAX).rev().find_map(|len| {
            let group = self.group(self.tokens.len(), len)?;
            self.after.get(&group).map(|&after| Place(after, len as u32))
        });
        found.unwrap_or_default()
    }

    fn step(&self, Place(at, found): Place, token: TokenId) -> Place {
        let goes_on = found > 0 && self.tokens.get(at as usize) == Some(&token);
        if goes_on { Place(at + 1, found) } else { Place::default() }
    }

    fn propose(&self, Place(at, found): Place, candidates: &mut Vec<Candidate>) {
        if let Some(&token) = self.tokens.get(at as usize).filter(|_| found > 0) {
            candidates.push(Candidate { token, evidence: Evidence(found as u8) });
        }
    }

    fn bytes(&self) -> usize {
        self.tokens.capacity() * size_of::<TokenId>() + self.after.len() * (size_of::<Group>() + size_of::<u32>()) * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_place_of_the_longest_group_is_found(text in prop::collection::vec(0..4_u32, 0..50)) {
            let mut lookup = PromptLookup::default();
            text.iter().for_each(|&token| lookup.observe(TokenId(token)));
            let found = (1..=GROUP_MAX).rev().filter(|&len| len < text.len()).find_map(|len| {
                let group = &text[text.len() - len..];
                let at = (0..text.len() - len).find(|&at| text[at..at + len] == *group)?;
                Some((at + len, len))
            });
            let expected = found.map_or(Place::default(), |(after, len)| Place(after as u32, len as u32));
            prop_assert_eq!(lookup.end(), expected);
        }
    }
}
