//! SAM: drafts from the prompt and the answer so far, by the longest suffix that occurred before. (CoordGen §4.1,
//! baseline 3; SAM-Decoding)
//!
//! What came latest after that suffix comes first, then what came before that, then what came after shorter suffixes.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place};
use crate::suffix_automaton::{Matched, SuffixAutomaton};
use duet_types::TokenId;

/// How many candidates a place has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breadth {
    /// What came latest after the longest match, as SAM drafts it.
    Single,
    /// Several, also after shorter matches.
    Several,
}

/// Drafts from the sequence itself.
#[derive(Clone, Debug)]
pub struct Context {
    automaton: SuffixAutomaton,
    breadth: Breadth,
}

impl Context {
    /// Over nothing yet.
    #[must_use]
    pub fn new(breadth: Breadth) -> Self {
        Self { automaton: SuffixAutomaton::default(), breadth }
    }
}

impl Drafter for Context {
    fn kind(&self) -> Kind {
        Kind::Context
    }

    fn observe(&mut self, token: TokenId) {
        self.automaton.push(token);
    }

    fn end(&self) -> Place {
        self.automaton.end().into()
    }

    fn step(&self, place: Place, token: TokenId) -> Place {
        self.automaton.step(place.into(), token).into()
    }

    fn propose(&self, place: Place, candidates: &mut Vec<Candidate>) {
        propose(&self.automaton, place.into(), self.breadth, candidates);
    }

    fn bytes(&self) -> usize {
        self.automaton.bytes()
    }
}

/// What came after the text at `place` in `automaton`.
pub(crate) fn propose(automaton: &SuffixAutomaton, place: Matched, breadth: Breadth, candidates: &mut Vec<Candidate>) {
    let begin = candidates.len();
    let mut at = Some(place).filter(|place| place.len > 0);
    let most = match breadth {
        Breadth::Single => 1,
        Breadth::Several => CANDIDATES,
    };
    for shortened in 0..LENGTHS {
        let Some(place) = at else { return };
        let successors = automaton.successors(place);
        for (rank, token) in successors.iter().enumerate() {
            if candidates.len() - begin == most {
                return;
            }
            if candidates[begin..].iter().all(|candidate| candidate.token != token) {
                candidates
                    .push(Candidate { token, evidence: evidence(place.len, shortened, rank, successors.is_single()) });
            }
        }
        at = automaton.back_off(place).filter(|shorter| shorter.len > 0);
    }
}

/// Candidates of a place.
const CANDIDATES: usize = 5;
/// Lengths of the match that are tried.
const LENGTHS: usize = 3;

/// By the length of the match, and by rank: the only successor, the latest of several, one before that. What came after
/// a shorter match only has a longer one against it, and is another kind of evidence.
fn evidence(len: u32, shortened: usize, rank: usize, is_single: bool) -> Evidence {
    let length = match len {
        0..=4 => len.saturating_sub(1),
        5..=6 => 4,
        7..=9 => 5,
        10..=15 => 6,
        16..=31 => 7,
        _ => 8,
    } as u8;
    let rank = match (is_single, rank) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, 1) => 2,
        (false, _) => 3,
    };
    if shortened == 0 { Evidence(1 + length * 4 + rank) } else { Evidence(37 + length.min(4) * 4 + rank) }
}

impl From<Matched> for Place {
    fn from(matched: Matched) -> Self {
        matched.into_place()
    }
}

impl From<Place> for Matched {
    fn from(place: Place) -> Self {
        Self::from_place(place)
    }
}
