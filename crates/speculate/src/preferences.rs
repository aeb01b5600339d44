//! Drafts from the model's preferences: what it would have said after two tokens, or after one.
//!
//! Whatever remembers them ([calibration](crate::calibration), [recycling](crate::recycling)) is asked for the successors of
//! the last two tokens and of the last one alone, of which the former go first. So a draft goes depth-first through what
//! the model preferred at each token: the tree is not built in advance, it is walked when it is wanted.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place};
use crate::successors::Successors;
use duet_types::TokenId;
use std::fmt::Debug;

/// What remembers successors.
pub(crate) trait Remembers: Debug + Send {
    /// Which drafter it makes.
    const KIND: Kind;

    /// What would come after two tokens, and after the second of them.
    fn successors(&self, before: u32, token: u32) -> [Option<&Successors>; 2];

    /// The model would say one of `successors` after a text that ends with `context`, in the request that is drafted for.
    fn learn(&mut self, _context: [TokenId; 2], _successors: &Successors) {}

    /// Bytes that are this drafter's own.
    fn bytes(&self) -> usize;
}

/// A drafter that looks up the last two tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Preferences<R> {
    remembered: R,
    end: Place,
}

impl<R> Preferences<R> {
    /// From what is remembered.
    pub(crate) fn of(remembered: R) -> Self {
        Self { remembered, end: Place::default() }
    }
}

impl<R: Remembers> Drafter for Preferences<R> {
    fn kind(&self) -> Kind {
        R::KIND
    }

    fn observe(&mut self, token: TokenId) {
        self.end = self.step(self.end, token);
    }

    fn end(&self) -> Place {
        self.end
    }

    /// The last two tokens.
    fn step(&self, Place(_, before): Place, token: TokenId) -> Place {
        Place(before, token.0)
    }

    fn propose(&self, Place(before, token): Place, candidates: &mut Vec<Candidate>) {
        let begin = candidates.len();
        for (successors, level) in self.remembered.successors(before, token).into_iter().zip([0, LEVEL]) {
            let Some(successors) = successors else { continue };
            for (rank, (token, below)) in successors.iter().enumerate() {
                if candidates[begin..].iter().all(|candidate| candidate.token != token) {
                    candidates.push(Candidate { token, evidence: evidence(level, rank, below, successors) });
                }
            }
        }
    }

    fn calibrate(&mut self, context: [TokenId; 2], successors: &Successors) {
        self.remembered.learn(context, successors);
    }

    fn bytes(&self) -> usize {
        self.remembered.bytes()
    }
}

/// Two tokens as one key.
pub(crate) fn pair(before: u32, token: u32) -> u64 {
    u64::from(before) << 32 | u64::from(token)
}

/// Evidence of one token comes after that of two.
const LEVEL: u8 = 16;

/// The first by its lead over the second, the others by how far they are behind.
fn evidence(level: u8, rank: usize, below: f32, successors: &Successors) -> Evidence {
    let lead = successors.iter().nth(1).map_or(f32::INFINITY, |(_, below)| below);
    let grade = |gap: f32| match gap {
        gap if gap < 0.5 => 0,
        gap if gap < 1.0 => 1,
        gap if gap < 2.0 => 2,
        gap if gap < 4.0 => 3,
        _ => 4,
    };
    let within = match rank {
        0 => grade(lead),
        1 => 5 + grade(below),
        _ => 10 + grade(below),
    };
    Evidence(1 + level + within)
}
