//! Windows that pass: of a sequence that does not fit into memory whole, layers with a window keep what they may still look
//! at, and no more.
//!
//! Pages hold all layers, so that any beginning of a sequence can be gone on from. A sequence for which the pool is too small
//! gives that up: behind its longest window a page keeps the layers that see all positions ([`Kept::Lasting`]), and takes as
//! much of the pool as these do. It can be cut near its end only ([`KvTable::cuts_from`]). A page that another table has as
//! well is copied, so that the other one loses nothing.
//!
//! Invariant: a layer with a window is never asked for a position of a page that keeps lasting layers only.

#[cfg(test)]
mod tests;

use super::{KvError, KvPool, KvTable, PAGE, Page, PageMemory, State, States};
use duet_types::Tokens;
use std::io;
use std::sync::Arc;

/// What a page keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    All,
    /// Layers that see all positions.
    Lasting,
}

/// How far the windows of a sequence have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Passed {
    /// It is kept whole.
    #[default]
    Never,
    /// The first pages keep lasting layers only.
    Pages(usize),
}

impl Passed {
    pub(super) fn pages(self) -> usize {
        match self {
            Self::Never => 0,
            Self::Pages(pages) => pages,
        }
    }
}

impl KvPool {
    /// Pages that so many of lasting layers count as.
    pub(super) fn count_as(&self, lasting: usize) -> usize {
        let layout = &self.inner.layout;
        (lasting * layout.lasting_bytes()).div_ceil(layout.page_bytes().max(1))
    }

    /// Whether a sequence that comes to have so many positions lets windows pass. A page more is asked about: whoever counts
    /// pages beforehand, counts the next token's.
    fn lets_pass(&self, positions: usize) -> bool {
        self.inner.window.is_some() && positions.saturating_add(PAGE).div_ceil(PAGE) > self.inner.capacity
    }

    fn take_lasting(&self, count: usize) -> Result<Vec<Arc<Page>>, KvError> {
        let mut state = self.state();
        let (used, more) = (self.used(&state), self.count_as(state.lasting + count) - self.count_as(state.lasting));
        let (free, capacity) = (self.inner.capacity - used, self.inner.capacity);
        if more > free {
            return Err(KvError::Full { wanted: more, free, capacity });
        }
        state.lasting += count;
        let faded = state.faded.len() - count.min(state.faded.len());
        let mut memory = state.faded.split_off(faded);
        let warm = state.warm.len() - (count - memory.len()).min(state.warm.len());
        let mut whole = state.warm.split_off(warm);
        while memory.len() + whole.len() < count {
            memory.push(self.cold_page(&mut state));
        }
        drop(state);
        whole.iter_mut().for_each(PageMemory::forget_window);
        memory.extend(whole);
        Ok(memory.into_iter().map(|memory| self.page(memory, Kept::Lasting)).collect())
    }

    /// Gives a page's memory back that kept lasting layers only, if there is one: there may be many more of them than the pool
    /// has pages.
    pub(super) fn has_given_back(&self) -> bool {
        let Some(mut page) = self.state().faded.pop() else { return false };
        page.forget();
        self.state().cold.push(page);
        true
    }

    /// A page that was used whole keeps lasting layers from now on.
    fn shrink(state: &mut State) {
        state.used -= 1;
        state.lasting += 1;
    }
}

impl KvTable {
    /// Says that the sequence is going to have so many positions. If the pool cannot hold them whole, windows pass from now on.
    pub fn expect(&mut self, positions: Tokens) {
        if self.passed == Passed::Never && self.pool.lets_pass(positions.as_usize()) {
            self.passed = Passed::Pages(0);
        }
        self.let_pass();
    }

    /// The first position behind which it may be cut, beside its end.
    #[must_use]
    pub fn cuts_from(&self) -> Tokens {
        match (self.passed.pages(), self.pool.inner.window) {
            (1.., Some(window)) => Tokens(((self.passed.pages() * PAGE + window).min(self.len)) as u32),
            _ => Tokens::ZERO,
        }
    }

    /// Whether [`Self::expect`] would have pages to copy or to give back.
    #[must_use]
    pub fn would_pass(&self, positions: Tokens) -> bool {
        let passes = self.passed != Passed::Never || self.pool.lets_pass(positions.as_usize());
        passes && self.behind_windows() > self.passed.pages()
    }

    /// Whole pages that no window sees any more.
    fn behind_windows(&self) -> usize {
        self.pool.inner.window.map_or(0, |window| self.len.saturating_sub(window) / PAGE)
    }

    /// Lets windows pass up to its end. A page for whose copy there is no room stays, and is tried again the next time.
    pub(super) fn let_pass(&mut self) {
        let Passed::Pages(passed) = self.passed else { return };
        for index in passed..self.behind_windows() {
            if !self.let_page_pass(index) {
                return;
            }
            self.passed = Passed::Pages(index + 1);
        }
    }

    fn let_page_pass(&mut self, index: usize) -> bool {
        if let Some(page) = Arc::get_mut(&mut self.pages[index]) {
            if page.kept == Kept::All {
                page.kept = Kept::Lasting;
                page.memory.iter_mut().for_each(PageMemory::forget_window);
                KvPool::shrink(&mut self.pool.state());
            }
            return true;
        }
        let shared = &self.pages[index];
        if shared.kept == Kept::Lasting {
            return true;
        }
        let Some(mut copy) = self.pool.take_lasting(1).ok().and_then(|mut pages| pages.pop()) else { return false };
        let lasting = self.pool.inner.layout.lasting_bytes();
        if let (Some(from), Some(to)) = (&shared.memory, Arc::get_mut(&mut copy).and_then(|page| page.memory.as_mut()))
        {
            to.bytes_mut()[..lasting].copy_from_slice(&from.bytes()[..lasting]);
        }
        self.pages[index] = copy;
        true
    }

    /// Writes its pages, and behind each what `behind` writes; before them how far windows have passed, where they may.
    pub(super) fn write_pages<W: io::Write + ?Sized>(
        &self,
        out: &mut W,
        behind: impl Fn(usize, &mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.pool.inner.window.is_some() {
            let passed = match self.passed {
                Passed::Never => 0,
                Passed::Pages(pages) => 1 + pages as u64,
            };
            out.write_all(&passed.to_le_bytes())?;
        }
        let of_lasting = self.pool.inner.layout.lasting_bytes();
        for (index, page) in self.memory().enumerate() {
            let bytes = page.bytes();
            out.write_all(if index < self.passed.pages() { &bytes[..of_lasting] } else { bytes })?;
            behind(index, out)?;
        }
        Ok(())
    }

    /// Reads what it wrote into an empty table, as far as `prefix` goes of a sequence that is to have `expected` positions.
    /// Windows pass as they are read, if these do not fit.
    pub(super) fn read_pages<R: io::Read + ?Sized>(
        &mut self,
        (prefix, expected): (Tokens, Tokens),
        from: &mut R,
        mut behind: impl FnMut(&mut States, usize, &mut R) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = self.read_passed(from)?;
        // What has passed is behind a window of any prefix that it may be cut at, but for none at all.
        let unseen = self.pool.inner.window.map_or(0, |window| prefix.as_usize().saturating_sub(window) / PAGE);
        self.passed = match written {
            _ if self.pool.lets_pass(expected.as_usize()) => Passed::Pages(unseen),
            Passed::Pages(pages) => Passed::Pages(pages.min(unseen)),
            Passed::Never => Passed::Never,
        };
        let of_lasting = self.pool.inner.layout.lasting_bytes();
        self.pages = self.pool.take_lasting(self.passed.pages()).map_err(io::Error::other)?;
        self.reserve(prefix).map_err(io::Error::other)?;
        for (index, page) in self.pages.iter_mut().enumerate() {
            let Some(memory) = Arc::get_mut(page).and_then(|page| page.memory.as_mut()) else { continue };
            let bytes = memory.bytes_mut();
            from.read_exact(if index < written.pages() { &mut bytes[..of_lasting] } else { bytes })?;
            if (written.pages()..self.passed.pages()).contains(&index) {
                memory.forget_window();
            }
            behind(&mut self.states, index, from)?;
        }
        Ok(())
    }

    fn read_passed(&self, from: &mut (impl io::Read + ?Sized)) -> io::Result<Passed> {
        if self.pool.inner.window.is_none() {
            return Ok(Passed::Never);
        }
        let mut passed = [0; 8];
        from.read_exact(&mut passed)?;
        let pages = u64::from_le_bytes(passed).checked_sub(1);
        Ok(pages.map_or(Passed::Never, |pages| Passed::Pages(usize::try_from(pages).unwrap_or(usize::MAX))))
    }
}
