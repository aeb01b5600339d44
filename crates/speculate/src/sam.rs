//! SAM: drafts from the prompt and the answer so far, by the longest suffix that occurred before. (CoordGen §4.1,
//! baseline 3; SAM-Decoding)
//!
//! What came latest after that suffix comes first, then what came before that.

use crate::drafter::{Candidate, Drafter, Evidence, Kind, Place};
use crate::suffix_automaton::{Matched, SuffixAutomaton};
use duet_types::TokenId;

/// How many candidates a place has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breadth {
    /// What came latest after the longest match, as SAM drafts it.
    Single,
    /// What came before that, too.
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
    if place.len == 0 {
        return;
    }
    let most = match breadth {
        Breadth::Single => 1,
        Breadth::Several => CANDIDATES,
    };
    let successors = automaton.successors(place);
    for (rank, token) in successors.iter().take(most).enumerate() {
        candidates.push(Candidate { token, evidence: evidence(place.len, rank, successors.is_single()) });
    }
}

/// Candidates of a place. More, and what came after shorter matches, brought no more tokens in the time.
const CANDIDATES: usize = 2;

/// By the length of the match, and by rank: the only successor, the latest of several, one before that. A longer match is
/// more evidence.
fn evidence(len: u32, rank: usize, is_single: bool) -> Evidence {
    let length = match len {
        0..=4 => len.saturating_sub(1),
        5..=6 => 4,
        7..=9 => 5,
        10..=15 => 6,
        16..=31 => 7,
        _ => 8,
    } as u8;
    let rank = match (is_single, rank) {
        (true, _) => 2,
        (false, 0) => 1,
        (false, _) => 0,
    };
    Evidence(1 + length * 3 + rank)
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
