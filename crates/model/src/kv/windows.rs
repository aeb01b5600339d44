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
        self.inner.window.is_some() && (positions + PAGE).div_ceil(PAGE) > self.inner.capacity
    }

    fn take_lasting(&self, count: usize) -> Result<Vec<Arc<Page>>, KvError> {
        let mut state = self.state();
        let (used, more) = (self.used(&state), self.count_as(state.lasting + count) - self.count_as(state.lasting));
        let (free, capacity) = (self.inner.capacity - used, self.inner.capacity);
        if more > free {
            return Err(KvError::Full { wanted: more, free, capacity });
        }
        state.lasting += count;
        let memory: Vec<PageMemory> = (0..count).map(|_| self.cold_page(&mut state)).collect();
        drop(state);
        Ok(memory.into_iter().map(|memory| self.page(memory, Kept::Lasting)).collect())
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

    /// Lets windows pass up to its end. A page for whose copy there is no room stays, and is tried again the next time.
    pub(super) fn let_pass(&mut self) {
        let (Passed::Pages(passed), Some(window)) = (self.passed, self.pool.inner.window) else { return };
        let behind = self.len.saturating_sub(window) / PAGE;
        for index in passed..behind {
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

    /// Writes its pages, each behind what `behind` writes; before them how many keep lasting layers only, where some may.
    pub(super) fn write_pages<W: io::Write + ?Sized>(
        &self,
        out: &mut W,
        behind: impl Fn(usize, &mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        let lasting = self.pages.iter().take_while(|page| page.kept == Kept::Lasting).count();
        if self.pool.inner.window.is_some() {
            out.write_all(&(lasting as u64).to_le_bytes())?;
        }
        let of_lasting = self.pool.inner.layout.lasting_bytes();
        for (index, page) in self.memory().enumerate() {
            let bytes = page.bytes();
            out.write_all(if index < lasting { &bytes[..of_lasting] } else { bytes })?;
            behind(index, out)?;
        }
        Ok(())
    }

    /// Reads what it wrote, as far as `positions` go, into an empty table. Windows pass as they are read, if they do not fit.
    pub(super) fn read_pages<R: io::Read + ?Sized>(
        &mut self,
        positions: Tokens,
        from: &mut R,
        mut behind: impl FnMut(&mut States, usize, &mut R) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = self.read_lasting(from)?;
        let (len, of_lasting) = (positions.as_usize(), self.pool.inner.layout.lasting_bytes());
        let passed = match self.pool.inner.window {
            Some(window) if self.pool.lets_pass(len) => written.max(len.saturating_sub(window) / PAGE),
            _ => written.min(len / PAGE),
        };
        if passed > 0 {
            self.pages = self.pool.take_lasting(passed).map_err(io::Error::other)?;
            self.passed = Passed::Pages(passed);
        }
        self.reserve(positions).map_err(io::Error::other)?;
        for (index, page) in self.pages.iter_mut().enumerate() {
            let Some(memory) = Arc::get_mut(page).and_then(|page| page.memory.as_mut()) else { continue };
            let bytes = memory.bytes_mut();
            from.read_exact(if index < written { &mut bytes[..of_lasting] } else { bytes })?;
            if (written..passed).contains(&index) {
                memory.forget_window();
            }
            behind(&mut self.states, index, from)?;
        }
        Ok(())
    }

    fn read_lasting(&self, from: &mut (impl io::Read + ?Sized)) -> io::Result<usize> {
        if self.pool.inner.window.is_none() {
            return Ok(0);
        }
        let mut lasting = [0; 8];
        from.read_exact(&mut lasting)?;
        Ok(usize::try_from(u64::from_le_bytes(lasting)).unwrap_or(usize::MAX))
    }
}
