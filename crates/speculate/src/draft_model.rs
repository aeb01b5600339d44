//! Drafts of a draft model: what a smaller model with the same tokens says would come next. (Leviathan et al. 2023)
//!
//! The model is run elsewhere, and not always: whoever runs it tells what it said along one path from the end of the
//! sequence ([`Told`]). That is proposed here until the sequence leaves the path. Its probabilities are evidence like any
//! other: what a probability is worth is [learned](crate::confidence), and the model's path is the one that all drafters
//! together think likeliest.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place};
use duet_types::TokenId;

/// Tokens that are kept of what it said in one place.
pub const SAID: usize = 4;

/// What a draft model said after some text: its likeliest tokens, and how likely it held each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Said {
    tokens: [TokenId; SAID],
    chances: [f32; SAID],
    len: u8,
}

/// What it said along a path from the end of the sequence: `said[i]` after the first `i` tokens of `path`.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The tokens that lead from place to place.
    pub path: &'a [TokenId],
    /// One more than there are tokens, or fewer.
    pub said: &'a [Said],
}

impl Said {
    /// Of the logits of the likeliest tokens, likeliest first: their share among each other. The more there are, the nearer
    /// that is to their probability.
    #[must_use]
    pub fn of_logits(likeliest: &[(TokenId, f32)]) -> Self {
        let largest = likeliest.first().map_or(0.0, |first| first.1);
        let share = |logit: f32| (logit - largest).exp();
        let all: f32 = likeliest.iter().map(|&(_, logit)| share(logit)).sum();
        let mut said = Self::default();
        for (index, &(token, logit)) in likeliest.iter().take(SAID).enumerate() {
            (said.tokens[index], said.chances[index]) = (token, share(logit) / all);
            said.len += 1;
        }
        said
    }

    /// Likeliest first.
    fn iter(&self) -> impl Iterator<Item = (TokenId, f32)> + '_ {
        self.tokens.iter().copied().zip(self.chances).take(self.len.into())
    }
}

/// Drafts from what it was told last.
#[derive(Clone, Debug, Default)]
pub struct DraftModel {
    path: Vec<TokenId>,
    said: Vec<Said>,
    /// How far the sequence has followed the path, and one more; 0 where it has left it.
    end: u32,
}

impl Drafter for DraftModel {
    fn kind(&self) -> Kind {
        Kind::Model
    }

    fn observe(&mut self, token: TokenId) {
        self.end = self.step(self.end(), token).0;
    }

    fn end(&self) -> Place {
        Place(self.end, 0)
    }

    fn step(&self, Place(followed, _): Place, token: TokenId) -> Place {
        let at = followed.checked_sub(1).and_then(|at| self.path.get(at as usize));
        Place(if at == Some(&token) { followed + 1 } else { 0 }, 0)
    }

    fn propose(&self, Place(followed, _): Place, candidates: &mut Vec<Candidate>) {
        let said = followed.checked_sub(1).and_then(|at| self.said.get(at as usize));
        for (rank, (token, chance)) in said.iter().flat_map(|said| said.iter()).enumerate() {
            candidates.push(Candidate { token, evidence: evidence(rank, chance) });
        }
    }

    fn told(&mut self, told: &Told<'_>) {
        self.path = told.path.to_vec();
        self.said = told.said.to_vec();
        self.end = 1;
    }

    fn bytes(&self) -> usize {
        self.path.capacity() * size_of::<TokenId>() + self.said.capacity() * size_of::<Said>()
    }
}

/// It spoke, and did not name the token.
pub(crate) const NOT_NAMED: Evidence = Evidence(1);
/// The first evidence of a likeliest token, and the first of another.
const FIRST: [u8; 2] = [2, 2 + GRADES.len() as u8 + 1];
/// Where grades of a probability end; the last is above all of them.
const GRADES: [f32; 11] = [0.01, 0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 0.99];
/// How likely a token is that it did not name, before anything is learned.
const NOT_NAMED_CHANCE: f32 = 0.02;

fn evidence(rank: usize, chance: f32) -> Evidence {
    let grade = GRADES.iter().filter(|&&end| chance >= end).count() as u8;
    Evidence(FIRST[rank.min(1)] + grade)
}

/// What a draft model's evidence is worth before anything is learned: the probability that it names.
pub(crate) fn chance_at_first(Evidence(evidence): Evidence) -> Option<f32> {
    let grade = match evidence {
        0 => return None,
        evidence if Evidence(evidence) == NOT_NAMED => return Some(NOT_NAMED_CHANCE),
        evidence if evidence < FIRST[1] => evidence - FIRST[0],
        evidence => evidence - FIRST[1],
    };
    let grade = usize::from(grade);
    let ends = |at: Option<usize>, end: f32| at.and_then(|at| GRADES.get(at)).copied().unwrap_or(end);
    (grade <= GRADES.len()).then(|| f32::midpoint(ends(grade.checked_sub(1), 0.0), ends(Some(grade), 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tokens: &[(u32, f32)]) -> Said {
        Said::of_logits(&tokens.iter().map(|&(token, logit)| (TokenId(token), logit)).collect::<Vec<_>>())
    }

    fn proposed(drafter: &DraftModel, place: Place) -> Vec<u32> {
        let mut candidates = Vec::new();
        drafter.propose(place, &mut candidates);
        candidates.iter().map(|candidate| candidate.token.0).collect()
    }

    #[test]
    fn what_was_told_is_proposed_along_its_path_and_nowhere_else() {
        let mut drafter = DraftModel::default();
        assert_eq!(proposed(&drafter, drafter.end()), [0; 0]);
        let said = [said(&[(1, 3.0), (2, 2.0)]), said(&[(5, 1.0)])];
        drafter.told(&Told { path: &[TokenId(2)], said: &said });
        assert_eq!(proposed(&drafter, drafter.end()), [1, 2]);
        assert_eq!(proposed(&drafter, drafter.step(drafter.end(), TokenId(1))), [0; 0], "not on its path");
        assert_eq!(proposed(&drafter, drafter.step(drafter.end(), TokenId(2))), [5]);
        drafter.observe(TokenId(2));
        assert_eq!(proposed(&drafter, drafter.end()), [5]);
        drafter.observe(TokenId(5));
        drafter.observe(TokenId(2));
        assert_eq!(proposed(&drafter, drafter.end()), [0; 0], "it was told no further");
    }

    #[test]
    fn evidence_is_worth_its_probability_at_first() {
        for chance in [0.001, 0.02, 0.1, 0.4, 0.6, 0.9, 0.98, 0.999] {
            for rank in 0..SAID {
                let first = chance_at_first(evidence(rank, chance)).unwrap();
                assert!((first - chance).abs() < 0.12, "{chance} {first}");
            }
        }
        assert_eq!(chance_at_first(Evidence(0)), None);
        let all = said(&[(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), (5, 0.0)]);
        assert!(all.iter().all(|(_, chance)| (chance - 0.2).abs() < 1e-6), "of all that were named");
        assert_eq!(all.iter().count(), SAID);
    }
}
