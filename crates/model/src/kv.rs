//! The paged KV cache: who owns pages, and when they come back.
//!
//! A page holds the keys and values of [`PAGE_TOKENS`] consecutive positions of one sequence, all layers. Every page in
//! use belongs to one table, or is shared read-only by several (a common prefix); it returns to its pool when the last
//! table drops it. `used <= capacity` always holds. Positions `0..len` of a table are written; a pass writes only to
//! pages that its table owns alone. What recurrent layers know of a sequence lies in its pages, or, where that is large,
//! beside them and counted as pages (`kv/states.rs`). A sequence that is too long for the pool keeps less of layers that see a
//! window only (`kv/windows.rs`). What a copy of a table's positions is worth later, its lineage says (`kv/lineage.rs`).
//! (Agent.xpu §4.1)

#[cfg(test)]
mod copies;
mod device;
mod lineage;
mod states;
#[cfg(test)]
mod tests;
mod windows;

pub use device::PageOfDevice;
pub use lineage::LineageId;
pub(crate) use states::StateBlock;
pub use states::StateLayout;

use duet_kernels::attention::{KvLayout, PAGE, PageMemory};
use duet_types::{Bytes, Tokens};
use lineage::Lineage;
use states::States;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};
use windows::{Kept, Passed};

pub use duet_kernels::attention::KvFormat;

/// Positions in one page. Attention splits contexts at multiples of this.
pub const PAGE_TOKENS: usize = PAGE;

/// Why a table could not grow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// Every page of the pool is in use.
    #[error("the KV cache is full: {wanted} more pages wanted, {free} of {capacity} free")]
    Full {
        /// Pages asked for.
        wanted: usize,
        /// Pages left.
        free: usize,
        /// Pages the pool may hold.
        capacity: usize,
    },
}

/// The memory that pages come from. Clones share it. Memory is taken from the system when a page is first used, and then
/// kept, but for what windows have passed.
#[derive(Clone)]
pub struct KvPool {
    inner: Arc<Inner>,
}

struct Inner {
    layout: KvLayout,
    /// What is kept of sequences beside their pages.
    states: Option<StateLayout>,
    /// The longest window of layers that have one, where sequences too long for the pool let them pass.
    window: Option<usize>,
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Pages in use, whole, and what states count as.
    used: usize,
    /// Pages in use that keep lasting layers only.
    lasting: usize,
    /// Pages whose memory is there: they were used before, or warmed.
    warm: Vec<PageMemory>,
    /// Pages that were never written: the system gives them memory when they are.
    cold: Vec<PageMemory>,
    /// Pages that kept lasting layers only, and nobody's: they have memory for as much.
    faded: Vec<PageMemory>,
    /// A page on its way from cold to warm, and how much of it is.
    warming: Option<(PageMemory, usize)>,
    /// Slabs that the system gave.
    slabs: usize,
    /// What a device that failed may still write to: nobody gets it again.
    left: Vec<PageMemory>,
}

impl fmt::Debug for KvPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KvPool({} of {} pages free)", self.free_pages(), self.capacity_pages())
    }
}

impl KvPool {
    /// A pool of at most `capacity` pages.
    #[must_use]
    pub fn new(layout: KvLayout, capacity: usize) -> Self {
        Self::with_states(layout, None, capacity)
    }

    /// The same, where sequences have states beside their pages, which count as pages.
    #[must_use]
    pub fn with_states(layout: KvLayout, states: Option<StateLayout>, capacity: usize) -> Self {
        Self { inner: Arc::new(Inner { layout, states, window: None, capacity, state: Mutex::default() }) }
    }

    /// A pool without states, in which sequences that do not fit whole let windows of this length pass. Nobody but the crew
    /// may know where its pages are.
    #[must_use]
    pub fn with_windows(layout: KvLayout, window: Tokens, capacity: usize) -> Self {
        let window = (layout.lasting_bytes() < layout.page_bytes()).then_some(window.as_usize());
        Self { inner: Arc::new(Inner { layout, states: None, window, capacity, state: Mutex::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic halfway, so a poisoned lock still guards a whole state.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all that is in use counts as.
    fn used(&self, state: &State) -> usize {
        state.used + self.count_as(state.lasting)
    }

    fn page(&self, memory: PageMemory, kept: Kept) -> Arc<Page> {
        Arc::new(Page { memory: Some(memory), kept, pool: self.clone() })
    }

    /// What is kept of sequences beside their pages.
    #[must_use]
    pub fn states(&self) -> Option<&StateLayout> {
        self.inner.states.as_ref()
    }

    /// Pages that a sequence of so many positions takes, its states among them.
    #[must_use]
    pub fn pages_of(&self, positions: Tokens) -> usize {
        let positions = positions.as_usize();
        positions.div_ceil(PAGE) + self.states().map_or(0, |states| states.pages_of(positions))
    }

    /// Pages that may still be taken.
    #[must_use]
    pub fn free_pages(&self) -> usize {
        self.inner.capacity - self.used(&self.state())
    }

    /// Pages that may be in use at once.
    #[must_use]
    pub fn capacity_pages(&self) -> usize {
        self.inner.capacity
    }

    /// Bytes of one page.
    #[must_use]
    pub fn page_bytes(&self) -> Bytes {
        Bytes(self.inner.layout.page_bytes() as u64)
    }

    /// The shape of pages.
    #[must_use]
    pub fn layout(&self) -> &KvLayout {
        &self.inner.layout
    }

    /// An empty table.
    #[must_use]
    pub fn table(&self) -> KvTable {
        KvTable {
            pool: self.clone(),
            pages: Vec::new(),
            len: 0,
            lineage: Lineage::new(),
            states: States::default(),
            passed: Passed::default(),
        }
    }

    /// Reads the first `prefix` positions of what [`KvTable::write_to`] wrote; where there is a recurrent state, these are
    /// all, or those up to where it may be cut.
    ///
    /// # Errors
    /// If the pool is full or there is less to read than that.
    pub fn read_table(&self, prefix: Tokens, from: &mut (impl io::Read + ?Sized)) -> io::Result<KvTable> {
        self.read_table_of(prefix, prefix, from)
    }

    /// The same for a sequence that is going to have so many positions ([`KvTable::expect`]).
    ///
    /// # Errors
    /// As [`Self::read_table`].
    pub fn read_table_of(
        &self,
        positions: Tokens,
        prefix: Tokens,
        from: &mut (impl io::Read + ?Sized),
    ) -> io::Result<KvTable> {
        let mut table = self.table();
        table.read_pages((prefix, positions.max(prefix)), from, |states, index, from| match self.states() {
            Some(layout) => states.read_behind(layout, (index, prefix.as_usize()), from),
            None => Ok(()),
        })?;
        table.len = prefix.as_usize();
        Ok(table)
    }

    /// Prepares a little memory for pages that will be taken soon: at most a megabyte a call, until a few pages are warm.
    /// The first write to fresh memory can take as long as computing with it, and so does not fall on whoever takes
    /// several pages at once. Before that it gives memory back that is more than the pool's: a page's.
    pub fn warm(&self) {
        if self.has_given_back() {
            return;
        }
        let (mut page, done) = {
            let mut state = self.state();
            let fresh = self.inner.capacity.saturating_sub(self.used(&state) + state.warm.len());
            match state.warming.take() {
                Some(warming) => warming,
                None if state.warm.len() >= WARM_PAGES || fresh == 0 => return,
                None => (self.cold_page(&mut state), 0),
            }
        };
        let bytes = page.bytes_mut();
        let end = bytes.len().min(done + WARM_BYTES);
        // One write in each of the system's small pages makes it give memory.
        bytes[done..end].iter_mut().step_by(4096).for_each(|byte| *byte = 0);
        let is_warm = end == bytes.len();
        let mut state = self.state();
        match &state.warming {
            _ if is_warm => state.warm.push(page),
            None => state.warming = Some((page, end)),
            // Somebody else began one meanwhile.
            Some(_) => state.cold.push(page),
        }
    }

    fn cold_page(&self, state: &mut State) -> PageMemory {
        if let Some(page) = state.cold.pop() {
            return page;
        }
        let (page, capacity) = (self.inner.layout.page_bytes().max(1), self.inner.capacity.max(1));
        let pages = match state.slabs {
            // One more, for a device; and as large as memory must be to be the system's own.
            0 => ((FIRST_SLAB_BYTES / page).clamp(1, capacity) + 1).max(SYSTEM_BYTES.div_ceil(page)),
            _ => (SLAB_BYTES / page).clamp(1, capacity),
        };
        state.slabs += 1;
        state.cold = PageMemory::slab(self.inner.layout, pages);
        state.cold.reverse();
        state.cold.pop().unwrap_or_else(|| PageMemory::new(self.inner.layout))
    }

    /// Counts pages as used.
    fn count(&self, count: usize) -> Result<MutexGuard<'_, State>, KvError> {
        let mut state = self.state();
        let free = self.inner.capacity - self.used(&state);
        if count > free {
            return Err(KvError::Full { wanted: count, free, capacity: self.inner.capacity });
        }
        state.used += count;
        Ok(state)
    }

    fn take(&self, count: usize) -> Result<Vec<Arc<Page>>, KvError> {
        let mut state = self.count(count)?;
        let memory: Vec<PageMemory> = (0..count)
            .map(|_| state.warm.pop().or_else(|| state.faded.pop()).unwrap_or_else(|| self.cold_page(&mut state)))
            .collect();
        drop(state);
        Ok(memory.into_iter().map(|memory| self.page(memory, Kept::All)).collect())
    }
}

/// Pages come from the system in pieces of this size, so that they lie in huge pages. Untouched ones cost nothing.
const SLAB_BYTES: usize = 64 << 20;

/// The first piece at most: a device that shares the host's memory is given one piece, whole.
const FIRST_SLAB_BYTES: usize = 512 << 20;
/// The first piece at least.
const SYSTEM_BYTES: usize = 2 << 20;

/// Pages kept warm: what a prefill chunk takes at once, and some more.
const WARM_PAGES: usize = 8;

/// Memory that one call of [`KvPool::warm`] prepares.
const WARM_BYTES: usize = 1 << 20;

/// A page in use; its memory goes back to the pool with the last reference.
struct Page {
    /// Absent only while dropping.
    memory: Option<PageMemory>,
    kept: Kept,
    pool: KvPool,
}

impl Drop for Page {
    fn drop(&mut self) {
        let memory = self.memory.take();
        let mut state = self.pool.state();
        match self.kept {
            Kept::All => {
                state.used -= 1;
                state.warm.extend(memory);
            }
            Kept::Lasting => {
                state.lasting -= 1;
                state.faded.extend(memory);
            }
        }
    }
}

/// The keys and values of one sequence: positions `0..len`.
pub struct KvTable {
    pool: KvPool,
    pages: Vec<Arc<Page>>,
    len: usize,
    lineage: Lineage,
    states: States,
    passed: Passed,
}

impl fmt::Debug for KvTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KvTable({} positions on {} pages)", self.len, self.pages.len())
    }
}

impl KvTable {
    /// Positions held.
    #[must_use]
    pub fn len(&self) -> Tokens {
        Tokens(self.len as u32)
    }

    /// Whether it holds no position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages referenced (shared ones included).
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Makes room for `extra` more positions that only this table can write; copies a shared last page if need be.
    ///
    /// # Errors
    /// [`KvError::Full`]; the table is then as long as before.
    pub fn reserve(&mut self, extra: Tokens) -> Result<(), KvError> {
        if extra == Tokens::ZERO {
            return Ok(());
        }
        self.expect(self.len() + extra);
        let first = self.len / PAGE;
        let last = (self.len + extra.as_usize()).div_ceil(PAGE);
        let shared = (first..self.pages.len()).filter(|&page| Arc::strong_count(&self.pages[page]) > 1);
        let shared: Vec<usize> = shared.collect();
        let missing = last.saturating_sub(self.pages.len());
        let mut fresh = self.pool.take(shared.len() + missing)?;
        self.states.reserve(&self.pool, self.len + extra.as_usize())?;
        self.pages.extend(fresh.drain(shared.len()..));
        for (page, copy) in shared.into_iter().zip(fresh) {
            self.pages[page] = copy_page(&self.pages[page], copy);
        }
        Ok(())
    }

    /// The last position up to `len` at which it may be cut: where there is a recurrent state, its end, or a border of pages
    /// at which a state is kept.
    #[must_use]
    pub fn cut(&self, len: Tokens) -> Tokens {
        let len = self.len.min(len.as_usize());
        if len < self.cuts_from().as_usize() {
            return Tokens::ZERO;
        }
        let distance = match self.pool.states() {
            Some(states) => states.distance(),
            None if self.layout().state > 0 => PAGE,
            None => 1,
        };
        Tokens(if len == self.len { len } else { len / distance * distance } as u32)
    }

    /// Forgets positions from `len` on, or from the [`Self::cut`] before, and returns their pages.
    pub fn truncate(&mut self, len: Tokens) {
        let (before, len) = (self.len, self.cut(len).as_usize());
        self.len = len;
        self.pages.truncate(self.len.div_ceil(PAGE));
        if self.pages.len() < self.passed.pages() {
            self.passed = Passed::Pages(self.pages.len());
        }
        if let Some(layout) = self.pool.states() {
            self.states.truncate(layout, self.len, self.len == before);
        }
        self.lineage.cut(self.len);
    }

    /// A second table that shares this one's first `prefix` positions read-only, or those up to the [`Self::cut`] before;
    /// copies at most one page.
    ///
    /// # Errors
    /// [`KvError::Full`] if the last, partial page cannot be copied.
    pub fn fork(&self, prefix: Tokens) -> Result<Self, KvError> {
        let len = self.cut(prefix).as_usize();
        let states = self.states.fork(&self.pool, len, len == self.len)?;
        let mut pages: Vec<Arc<Page>> = self.pages[..len.div_ceil(PAGE)].to_vec();
        if !len.is_multiple_of(PAGE)
            && let Some(last) = pages.last_mut()
        {
            let mut copy = self.pool.take(1)?;
            if let Some(copy) = copy.pop() {
                *last = copy_page(last, copy);
            }
        }
        let passed = if len == 0 { Passed::default() } else { self.passed };
        Ok(Self { pool: self.pool.clone(), pages, len, lineage: self.lineage.fork(len), states, passed })
    }

    /// Writes its pages one after the other, as much as they keep, and behind each the state that is kept there. They mean
    /// something to a pool of the same layout only.
    ///
    /// # Errors
    /// As `out` does.
    pub fn write_to(&self, out: &mut (impl io::Write + ?Sized)) -> io::Result<()> {
        self.write_pages(out, |index, out| match self.pool.states() {
            Some(layout) => self.states.write_behind(layout, (index, self.len), out),
            None => Ok(()),
        })
    }

    /// All pages, to read.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &PageMemory> {
        self.pages.iter().filter_map(|page| page.memory.as_ref())
    }

    /// The position of the page that holds the next one, and the pages of the next `rows` positions, all owned by this
    /// table alone (after [`Self::reserve`]).
    ///
    /// # Panics
    /// If a page is missing, or is another table's as well: to leave it out would move what is written to the next page.
    pub(crate) fn tail(&mut self, rows: Tokens) -> (usize, Vec<&mut PageMemory>) {
        let first = self.len / PAGE;
        let last = if rows == Tokens::ZERO { first } else { (self.len + rows.as_usize()).div_ceil(PAGE) };
        assert!(last <= self.pages.len(), "no pages were reserved for {rows} positions behind {}", self.len);
        let own = |page| {
            let memory = Arc::get_mut(page).and_then(|page: &mut Page| page.memory.as_mut());
            memory.unwrap_or_else(|| panic!("a page to write to is shared: it was not reserved"))
        };
        (first * PAGE, self.pages[first..last].iter_mut().map(own).collect())
    }

    /// Names what is in it, for who copies that.
    pub(crate) fn lineage(&self) -> LineageId {
        self.lineage.id()
    }

    /// Of positions that were copied under an id, how many of its own are still the same.
    pub(crate) fn unchanged_since(&self, id: LineageId) -> Tokens {
        Tokens(self.len.min(self.lineage.in_common(id)) as u32)
    }

    /// Somebody has copied positions up to `end`, or is about to.
    pub(crate) fn copied_to(&self, end: Tokens) {
        self.lineage.copied_to(end.as_usize());
    }

    /// The shape of its pages.
    pub(crate) fn layout(&self) -> &KvLayout {
        self.pool.layout()
    }

    /// Writes the next positions from slots of another page (after [`Self::reserve`]).
    pub(crate) fn write_positions(&mut self, from: &PageMemory, slots: &[usize]) {
        let layout = *self.layout();
        let len = self.len;
        let (first, mut pages) = self.tail(Tokens(slots.len() as u32));
        for (index, &slot) in slots.iter().enumerate() {
            let at = len + index - first;
            layout.copy_position(from.bytes(), slot, pages[at / PAGE].bytes_mut(), at % PAGE);
        }
    }

    /// A part of the recurrent state after its last position: zeros, if it holds none.
    pub(crate) fn state(&self, first: usize, len: usize) -> Vec<f32> {
        if let Some(end) = self.end_state() {
            return end[first..first + len].to_vec();
        }
        let mut state = vec![0.0; len];
        let last = self.len.checked_sub(1).and_then(|last| self.memory().nth(last / PAGE));
        if let Some(page) = last.filter(|_| self.pool.states().is_none()) {
            self.layout().read_state(page.bytes(), first, &mut state);
        }
        state
    }

    /// Writes a part of the state `behind` positions after its last one (after [`Self::reserve`]).
    pub(crate) fn write_state(&mut self, behind: usize, first: usize, values: &[f32]) {
        let (layout, len) = (*self.layout(), self.len);
        let (start, mut pages) = self.tail(Tokens(behind as u32));
        layout.write_state(pages[(len + behind - 1 - start) / PAGE].bytes_mut(), first, values);
    }

    /// What is kept of it beside its pages, after its last position: none before the first.
    pub(crate) fn end_state(&self) -> Option<&StateBlock> {
        self.states.end()
    }

    /// Positions from one state that is kept beside pages to the next; none where there are none.
    pub(crate) fn state_distance(&self) -> Option<usize> {
        self.pool.states().map(StateLayout::distance)
    }

    /// Takes the state behind the positions that it is going to grow by, and those at the borders among them. Returns the
    /// block of the earlier one, if no other table has it.
    pub(crate) fn advance_state(&mut self, end: StateBlock, borders: Vec<StateBlock>) -> Option<StateBlock> {
        self.states.advance(end, borders)
    }

    /// `rows` more positions are written, and what may have been copied behind them is none.
    pub(crate) fn grow(&mut self, rows: usize) {
        self.len += rows;
        self.lineage.cut(self.len);
        debug_assert!(self.len <= self.pages.len() * PAGE);
    }
}

/// `copy` with the contents of `page`.
fn copy_page(page: &Page, mut copy: Arc<Page>) -> Arc<Page> {
    if let (Some(from), Some(to)) = (&page.memory, Arc::get_mut(&mut copy).and_then(|page| page.memory.as_mut())) {
        to.bytes_mut().copy_from_slice(from.bytes());
    }
    copy
}
