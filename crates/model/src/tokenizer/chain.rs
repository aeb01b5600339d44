//! A row of symbols in which neighbours join.
//!
//! Places never move: a joined pair stays at the place of its left symbol, and the right place is dead.
//! Walking `next` from place 0 visits exactly the live places, in order.

const NONE: usize = usize::MAX;
/// The id at a dead place. No vocabulary is that large.
const DEAD: u32 = u32::MAX;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Chain {
    symbols: Vec<Symbol>,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    previous: usize,
    next: usize,
}

impl Chain {
    /// Forgets everything and begins with these symbols.
    pub(super) fn reset(&mut self, ids: impl Iterator<Item = u32>) {
        self.symbols.clear();
        self.symbols.extend(ids.enumerate().map(|(place, id)| Symbol {
            id,
            previous: place.wrapping_sub(1),
            next: place + 1,
        }));
        if let Some(last) = self.symbols.last_mut() {
            last.next = NONE;
        }
    }

    /// The symbol at a place; never that of a live place when the place is dead.
    pub(super) fn id(&self, place: usize) -> u32 {
        self.symbols[place].id
    }

    pub(super) fn previous(&self, place: usize) -> Option<usize> {
        Some(self.symbols[place].previous).filter(|&previous| previous != NONE)
    }

    pub(super) fn next(&self, place: usize) -> Option<usize> {
        Some(self.symbols[place].next).filter(|&next| next != NONE)
    }

    /// Joins two neighbours into `id`, at the place of the left one.
    pub(super) fn join(&mut self, left: usize, right: usize, id: u32) {
        let after = self.symbols[right].next;
        self.symbols[right] = Symbol { id: DEAD, previous: NONE, next: NONE };
        self.symbols[left].id = id;
        self.symbols[left].next = after;
        if let Some(symbol) = self.symbols.get_mut(after) {
            symbol.previous = left;
        }
    }

    /// The live places, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        let first = if self.symbols.is_empty() { None } else { Some(0) };
        std::iter::successors(first, |&place| self.next(place))
    }

    /// The live symbols, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.places().map(|place| self.id(place))
    }
}
