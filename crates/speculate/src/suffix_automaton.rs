//! A suffix automaton that grows token by token: for every suffix of what was read so far, what followed it before.
//!
//! Each state stands for the texts that end at the same places; its edges are the tokens that came next somewhere. The
//! longest suffix of the whole text that occurred earlier is the suffix link of the last state, so the place where
//! drafting begins costs nothing to find. (CoordGen §4.1; Mohri et al. 2009 for several texts in one automaton)
//!
//! **Invariants:** at most two states and three edges a token, so memory is bounded and an operation is amortised O(1),
//! whatever the text's length; nothing is ever removed. Edges are looked up in a hash table that is never walked, so
//! that the same tokens give the same automaton everywhere.

use crate::drafter::Place;
use duet_types::TokenId;
use hashbrown::HashTable;

/// The automaton of one text or several.
#[derive(Clone, Debug)]
pub struct SuffixAutomaton {
    states: Vec<State>,
    edges: Vec<Edge>,
    /// Indices into `edges`, by state and token.
    index: HashTable<u32>,
    last: u32,
}

/// A place in an automaton: the longest suffix of some text that the automaton knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    state: u32,
    /// Length of the suffix.
    pub len: u32,
}

impl Matched {
    pub(crate) fn into_place(self) -> Place {
        Place(self.state, self.len)
    }

    pub(crate) fn from_place(Place(state, len): Place) -> Self {
        Self { state, len }
    }
}

#[derive(Clone, Debug)]
struct State {
    /// Of the longest text that it stands for.
    len: u32,
    /// The state of the longest suffix that also ends elsewhere.
    link: u32,
    /// Its edges, as a list.
    first_edge: u32,
    /// The tokens that came next, latest first.
    recent: [u32; RECENT],
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    token: u32,
    to: u32,
    next: u32,
}

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;
/// Successors that a state remembers by their order.
pub const RECENT: usize = 4;
/// Shorter suffixes whose order of successors a token changes. More would cost time for contexts that say little.
const TOUCHED: usize = 6;

impl Default for SuffixAutomaton {
    fn default() -> Self {
        let root = State { len: 0, link: NONE, first_edge: NONE, recent: [NONE; RECENT] };
        Self { states: vec![root], edges: Vec::new(), index: HashTable::new(), last: ROOT }
    }
}

impl SuffixAutomaton {
    /// Reads one token more.
    pub fn push(&mut self, token: TokenId) {
        let (token, before) = (token.0, self.last);
        if let Some(known) = self.target(before, token) {
            // Only where several texts share an automaton: this beginning was read before.
            self.last = self.state_of_length(before, known, token);
            self.touch(before, token);
            return;
        }
        let new = self.add_state(State {
            len: self.states[before as usize].len + 1,
            link: ROOT,
            first_edge: NONE,
            recent: [NONE; RECENT],
        });
        let mut at = before;
        while at != NONE {
            if let Some(known) = self.target(at, token) {
                let link = self.state_of_length(at, known, token);
                self.states[new as usize].link = link;
                self.touch(at, token);
                break;
            }
            self.add_edge(at, token, new);
            remember(&mut self.states[at as usize].recent, token);
            at = self.states[at as usize].link;
        }
        self.last = new;
    }

    /// Begins another text: what follows continues nothing.
    pub fn begin_text(&mut self) {
        self.last = ROOT;
    }

    /// The longest suffix of the text that occurred earlier.
    #[must_use]
    pub fn end(&self) -> Matched {
        let state = self.states[self.last as usize].link;
        if state == NONE { Matched::default() } else { Matched { state, len: self.states[state as usize].len } }
    }

    /// The longest suffix of (the text at `place`, then `token`) that the automaton knows.
    #[must_use]
    pub fn step(&self, place: Matched, token: TokenId) -> Matched {
        let Matched { mut state, mut len } = place;
        loop {
            if let Some(to) = self.target(state, token.0) {
                return Matched { state: to, len: len + 1 };
            }
            if state == ROOT {
                return Matched::default();
            }
            (state, len) = self.shorter(state);
        }
    }

    /// The place of the same text after more was read: its state may have been split since.
    #[must_use]
    pub fn settled(&self, place: Matched) -> Matched {
        let mut state = place.state;
        while state != ROOT && self.shorter(state).1 >= place.len {
            state = self.shorter(state).0;
        }
        Matched { state, ..place }
    }

    /// What came after the text at `place`, latest first, as far as is remembered.
    #[must_use]
    pub fn successors(&self, place: Matched) -> Successors {
        Successors { recent: self.states[place.state as usize].recent }
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
            + self.edges.capacity() * size_of::<Edge>()
            + self.index.allocation_size()
    }

    fn shorter(&self, state: u32) -> (u32, u32) {
        let link = self.states[state as usize].link;
        (link, self.states[link as usize].len)
    }

    fn target(&self, state: u32, token: u32) -> Option<u32> {
        self.edge(state, token).map(|edge| self.edges[edge as usize].to)
    }

    fn edge(&self, state: u32, token: u32) -> Option<u32> {
        let is_it = |&edge: &u32| {
            let edge = &self.edges[edge as usize];
            (edge.from, edge.token) == (state, token)
        };
        self.index.find(hash(state, token), is_it).copied()
    }

    fn add_edge(&mut self, from: u32, token: u32, to: u32) {
        let edge = self.edges.len() as u32;
        let state = &mut self.states[from as usize];
        self.edges.push(Edge { from, token, to, next: state.first_edge });
        state.first_edge = edge;
        let edges = &self.edges;
        self.index.insert_unique(hash(from, token), edge, |&edge| {
            let edge = &edges[edge as usize];
            hash(edge.from, edge.token)
        });
    }

    fn add_state(&mut self, state: State) -> u32 {
        self.states.push(state);
        self.states.len() as u32 - 1
    }

    /// The state of the text at `from` and `token`, of which `to` is the state: split off, if `to` has longer texts.
    fn state_of_length(&mut self, from: u32, to: u32, token: u32) -> u32 {
        let len = self.states[from as usize].len + 1;
        if self.states[to as usize].len == len {
            return to;
        }
        let split = State { len, first_edge: NONE, ..self.states[to as usize].clone() };
        let split = self.add_state(split);
        let mut edge = self.states[to as usize].first_edge;
        while edge != NONE {
            let Edge { token, to, next, .. } = self.edges[edge as usize];
            self.add_edge(split, token, to);
            edge = next;
        }
        self.states[to as usize].link = split;
        let mut at = from;
        while at != NONE {
            match self.edge(at, token) {
                Some(edge) if self.edges[edge as usize].to == to => self.edges[edge as usize].to = split,
                _ => break,
            }
            at = self.states[at as usize].link;
        }
        split
    }

    /// `token` came after `state` and its suffixes just now.
    fn touch(&mut self, state: u32, token: u32) {
        let mut at = state;
        for _ in 0..TOUCHED {
            if at == NONE {
                break;
            }
            remember(&mut self.states[at as usize].recent, token);
            at = self.states[at as usize].link;
        }
    }
}

/// What came after a text.
#[derive(Clone, Copy, Debug)]
pub struct Successors {
    recent: [u32; RECENT],
}

impl Successors {
    /// Latest first.
    pub fn iter(&self) -> impl Iterator<Item = TokenId> + use<> {
        self.recent.into_iter().take_while(|&token| token != NONE).map(TokenId)
    }

    /// Whether there was only one.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.recent[1] == NONE
    }
}

/// Puts a token in front; the one that falls out was the longest ago.
fn remember(recent: &mut [u32; RECENT], token: u32) {
    let at = recent.iter().position(|&known| known == token).unwrap_or(RECENT - 1);
    recent[..=at].rotate_right(1);
    recent[0] = token;
}

/// Fibonacci hashing of both numbers as one: spreads neighbours, which states and tokens often are.
fn hash(state: u32, token: u32) -> u64 {
    let both = (u64::from(state) << 32 | u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    both ^ (both >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u32]) -> SuffixAutomaton {
        let mut automaton = SuffixAutomaton::default();
        text.iter().for_each(|&token| automaton.push(TokenId(token)));
        automaton
    }

    /// The longest suffix of `text` that also ends earlier in it, and what came after it there, latest first.
    fn by_hand(text: &[u32]) -> (usize, Vec<u32>) {
        for len in (1..text.len()).rev() {
            let suffix = &text[text.len() - len..];
            let ends: Vec<usize> = (len..text.len()).filter(|&end| text[end - len..end] == *suffix).collect();
            if !ends.is_empty() {
                let mut after: Vec<u32> = Vec::new();
                for end in ends.into_iter().rev() {
                    if !after.contains(&text[end]) {
                        after.push(text[end]);
                    }
                }
                return (len, after);
            }
        }
        (0, Vec::new())
    }

    proptest! {
        /// Few tokens, so that everything occurs again.
        #[test]
        fn the_end_is_the_longest_suffix_that_occurred_before(text in prop::collection::vec(0..3_u32, 0..60)) {
            let automaton = read(&text);
            let (len, after) = by_hand(&text);
            prop_assert_eq!(automaton.end().len as usize, len);
            if len > 0 {
                let found: Vec<u32> = automaton.successors(automaton.end()).iter().map(|token| token.0).collect();
                // The order of long-ago successors of short suffixes is not kept up; which there are, is.
                prop_assert_eq!(found[0], after[0]);
                prop_assert!(found.iter().all(|token| after.contains(token)));
                prop_assert_eq!(found.len(), after.len().min(RECENT));
            }
        }

        #[test]
        fn a_step_finds_the_longest_suffix_that_is_known(
            text in prop::collection::vec(0..3_u32, 1..40),
            walk in prop::collection::vec(0..3_u32, 1..20),
        ) {
            let automaton = read(&text);
            let mut place = Matched::default();
            for end in 1..=walk.len() {
                place = automaton.step(place, TokenId(walk[end - 1]));
                let known = |len: &usize| text.windows(*len).any(|window| window == &walk[end - len..end]);
                let longest = (1..=end).rev().find(known).unwrap_or(0);
                prop_assert_eq!(place.len as usize, longest);
            }
        }

        #[test]
        fn several_texts_are_known_apart(texts in prop::collection::vec(prop::collection::vec(0..3_u32, 1..12), 1..6)) {
            let mut automaton = SuffixAutomaton::default();
            for text in &texts {
                automaton.begin_text();
                text.iter().for_each(|&token| automaton.push(TokenId(token)));
            }
            let joined: Vec<u32> = texts.concat();
            for window in joined.windows(3) {
                let known = texts.iter().any(|text| text.windows(3).any(|other| other == window));
                let place = window.iter().fold(Matched::default(), |at, &token| automaton.step(at, TokenId(token)));
                prop_assert_eq!(place.len == 3, known, "{:?} in {:?}", window, texts);
            }
        }

        #[test]
        fn there_are_at_most_two_states_and_three_edges_a_token(text in prop::collection::vec(0..4_u32, 1..300)) {
            let automaton = read(&text);
            prop_assert!(automaton.states.len() <= 2 * text.len() + 1);
            prop_assert!(automaton.edges.len() <= 3 * text.len() + 1);
        }
    }

    #[test]
    fn memory_is_bounded_for_each_token() {
        let text: Vec<u32> = (0..32_768_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 20) % 997).collect();
        let bytes = read(&text).bytes();
        assert!(bytes < text.len() * 256, "{} bytes a token", bytes / text.len());
    }
}
