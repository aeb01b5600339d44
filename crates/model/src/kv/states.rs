//! What recurrent layers know of a sequence, where that is too large for every page: matrices of many megabytes.
//!
//! A table has the state after its last position, and one at every [`StateLayout::every`]th page's border: there, and at its
//! end, it can be cut. Each is a block of memory that counts as so many pages ([`StateLayout::pages`]), so that the pool's
//! bound holds for both; [`KvPool::pages_of`] says how many a sequence takes. Blocks are never written once they are here, so
//! tables share them. (A pass writes the next state into a block of its own: `forward/recurrent.rs`.)
//!
//! Invariant: a table of `len` positions has the state after `len`, and those at all borders up to there, and has paid for
//! them.

use super::{KvError, KvPool, PAGE_TOKENS};
use std::io;
use std::sync::Arc;

/// How large a state is, and where it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLayout {
    /// Floats.
    pub floats: usize,
    /// Pages that one counts as.
    pub pages: usize,
    /// Pages from one that is kept to the next.
    pub every: usize,
}

impl StateLayout {
    /// A state of so many floats beside pages of so many bytes.
    #[must_use]
    pub fn new(floats: usize, page_bytes: usize) -> Self {
        let bytes = floats * size_of::<f32>();
        let every = bytes.div_ceil(BYTES_EACH_PAGE).next_power_of_two().min(EVERY_MAX);
        Self { floats, pages: bytes.div_ceil(page_bytes.max(1)), every }
    }

    /// Positions from one state that is kept to the next.
    #[must_use]
    pub fn distance(&self) -> usize {
        self.every * PAGE_TOKENS
    }

    /// Pages that the states of a sequence of so many positions count as: one at its end, and those at borders.
    pub(super) fn pages_of(&self, positions: usize) -> usize {
        if positions == 0 { 0 } else { self.pages * (1 + positions / self.distance()) }
    }
}

/// A sequence pays for its states about this much with each page, until they are as far from each other as
/// [`EVERY_MAX`] says.
const BYTES_EACH_PAGE: usize = 1 << 20;

/// 1,024 positions: a prompt that begins like another computes at most so many again.
const EVERY_MAX: usize = 16;

/// A state: floats, layer by layer.
pub(crate) type StateBlock = Vec<f32>;

/// Pages of a pool that a state counts as, until this is dropped.
struct Paid {
    pool: KvPool,
    pages: usize,
}

impl Paid {
    fn one(pool: &KvPool, layout: &StateLayout) -> Result<Self, KvError> {
        drop(pool.count(layout.pages)?);
        Ok(Self { pool: pool.clone(), pages: layout.pages })
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        self.pool.state().used -= self.pages;
    }
}

/// A state at a border.
struct Border {
    block: Arc<StateBlock>,
    _paid: Paid,
}

/// Those of a table.
#[derive(Default)]
pub(super) struct States {
    /// After the last position; none before the first.
    end: Option<Arc<StateBlock>>,
    paid: Option<Paid>,
    /// At each border, in order.
    borders: Vec<Arc<Border>>,
    /// For those that a pass is going to bring.
    reserved: Vec<Paid>,
}

impl States {
    /// Pays for the states that a table grows by when it grows to `len` positions.
    pub(super) fn reserve(&mut self, pool: &KvPool, len: usize) -> Result<(), KvError> {
        let Some(layout) = pool.states() else { return Ok(()) };
        let had_end = self.paid.is_some();
        let before = self.reserved.len();
        let paid = self.pay(pool, layout, len / layout.distance());
        if paid.is_err() {
            self.reserved.truncate(before);
            self.paid = self.paid.take().filter(|_| had_end);
        }
        paid
    }

    fn pay(&mut self, pool: &KvPool, layout: &StateLayout, borders: usize) -> Result<(), KvError> {
        if self.paid.is_none() {
            self.paid = Some(Paid::one(pool, layout)?);
        }
        while self.borders.len() + self.reserved.len() < borders {
            self.reserved.push(Paid::one(pool, layout)?);
        }
        Ok(())
    }

    /// Keeps what a table of `len` positions has, which is where it can be cut, or its end.
    pub(super) fn truncate(&mut self, layout: &StateLayout, len: usize, is_end: bool) {
        self.reserved.clear();
        self.borders.truncate(len / layout.distance());
        if !is_end {
            self.end = self.borders.last().map(|border| Arc::clone(&border.block));
        }
        if len == 0 {
            (self.end, self.paid) = (None, None);
        }
    }

    /// A copy for a table that shares the first `prefix` positions.
    pub(super) fn fork(&self, pool: &KvPool, prefix: usize, is_end: bool) -> Result<Self, KvError> {
        let Some(layout) = pool.states().filter(|_| prefix > 0) else { return Ok(Self::default()) };
        let paid = Some(Paid::one(pool, layout)?);
        let mut fork = Self { end: self.end.clone(), paid, borders: self.borders.clone(), reserved: Vec::new() };
        fork.truncate(layout, prefix, is_end);
        Ok(fork)
    }

    /// The state after the last position.
    pub(super) fn end(&self) -> Option<&StateBlock> {
        self.end.as_deref()
    }

    /// Takes the state that a pass leads to, and those at the borders that it crossed, in order, which were paid for. Returns
    /// the block of the earlier one, if nobody shares it.
    pub(super) fn advance(&mut self, end: StateBlock, borders: Vec<StateBlock>) -> Option<StateBlock> {
        for block in borders {
            if let Some(paid) = self.reserved.pop() {
                self.borders.push(Arc::new(Border { block: Arc::new(block), _paid: paid }));
            }
        }
        self.end.replace(Arc::new(end)).and_then(|earlier| Arc::try_unwrap(earlier).ok())
    }

    /// Writes what lies behind page `page` in a file, of a table of `len` positions.
    pub(super) fn write_behind(
        &self,
        layout: &StateLayout,
        (page, len): (usize, usize),
        out: &mut (impl io::Write + ?Sized),
    ) -> io::Result<()> {
        let is_last = page + 1 == len.div_ceil(PAGE_TOKENS);
        let is_border = (page + 1).is_multiple_of(layout.every) && (page + 1) * PAGE_TOKENS <= len;
        let border = is_border.then(|| self.borders.get(page / layout.every)).flatten();
        match (border, self.end()) {
            (Some(border), _) => write(&border.block, out),
            (None, Some(end)) if is_last => write(end, out),
            _ => Ok(()),
        }
    }

    /// Reads it, for a table that shall have `len` positions, after [`Self::reserve`].
    pub(super) fn read_behind(
        &mut self,
        layout: &StateLayout,
        (page, len): (usize, usize),
        from: &mut (impl io::Read + ?Sized),
    ) -> io::Result<()> {
        let is_last = page + 1 == len.div_ceil(PAGE_TOKENS);
        let is_border = (page + 1).is_multiple_of(layout.every) && (page + 1) * PAGE_TOKENS <= len;
        if is_border {
            let block = Arc::new(read(layout.floats, from)?);
            self.end = Some(Arc::clone(&block));
            if let Some(paid) = self.reserved.pop() {
                self.borders.push(Arc::new(Border { block, _paid: paid }));
            }
        } else if is_last {
            self.end = Some(Arc::new(read(layout.floats, from)?));
        }
        Ok(())
    }
}

/// Floats that go through a buffer at once.
const FLOATS_AT_ONCE: usize = 4096;

fn write(block: &StateBlock, out: &mut (impl io::Write + ?Sized)) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(FLOATS_AT_ONCE * size_of::<f32>());
    for part in block.chunks(FLOATS_AT_ONCE) {
        bytes.clear();
        bytes.extend(part.iter().flat_map(|x| x.to_le_bytes()));
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn read(floats: usize, from: &mut (impl io::Read + ?Sized)) -> io::Result<StateBlock> {
    let mut block = vec![0.0; floats];
    let mut bytes = vec![0; FLOATS_AT_ONCE * size_of::<f32>()];
    for part in block.chunks_mut(FLOATS_AT_ONCE) {
        let bytes = &mut bytes[..size_of_val(part)];
        from.read_exact(bytes)?;
        part.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_as_far_apart_as_their_size_asks_for() {
        let every = |bytes: usize| StateLayout::new(bytes / 4, 4096).every;
        assert_eq!([4, 1 << 20, (1 << 20) + 4, 5 << 20, 15 << 20, 80 << 20].map(every), [1, 1, 2, 8, 16, 16]);
        let layout = StateLayout::new(1025, 4096);
        assert_eq!((layout.pages, layout.distance()), (2, PAGE_TOKENS));
        assert_eq!([0, 1, 63, 64, 130].map(|len| layout.pages_of(len)), [0, 2, 2, 4, 6]);
    }
}
