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

    /// What came after the text at `place`, latest first, and how many there were in all, as far as is remembered.
    #[must_use]
    pub fn successors(&self, place: Matched) -> Successors {
        Successors { recent: self.states[place.state as usize].recent }
    }

    /// The next shorter suffix that was seen in other company; nothing for the empty one.
    #[must_use]
    pub fn back_off(&self, place: Matched) -> Option<Matched> {
        if place.state == ROOT {
            return None;
        }
        let (state, len) = self.shorter(place.state);
        Some(Matched { state, len })
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
