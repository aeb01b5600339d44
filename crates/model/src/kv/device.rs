//! Pages that a device reads and writes in place.
//!
//! A device writes rows of a pass to the pages that a table reserved for them, and rows of draft trees to a page of its own. If it
//! fails it may write on, for as long as its driver lets it: what it may still write to is left to it for good, so that nobody's
//! keys and values change behind his back.

use super::{KvPool, KvTable};
use duet_kernels::attention::{PAGE, PageMemory};
use duet_kernels::memory::Region;
use std::sync::Arc;

/// A page that no sequence has, beyond those that the pool may have in use.
pub struct PageOfDevice {
    /// Absent only while dropping.
    memory: Option<PageMemory>,
    pool: KvPool,
}

impl std::fmt::Debug for PageOfDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PageOfDevice")
    }
}

impl PageOfDevice {
    /// Which page of a region it is; nothing if it lies elsewhere.
    #[must_use]
    pub fn number_in(&self, region: &Region) -> Option<usize> {
        self.memory.as_ref()?.number_in(region)
    }

    /// Bytes from one page to the next.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.memory.as_ref().map_or(0, PageMemory::stride)
    }

    /// Leaves it to a device that may still write to it.
    pub fn leave(mut self) {
        let memory = self.memory.take();
        self.pool.state().left.extend(memory);
    }
}

impl Drop for PageOfDevice {
    fn drop(&mut self) {
        let memory = self.memory.take();
        self.pool.state().cold.extend(memory);
    }
}

impl KvTable {
    /// A page of its pool for a device.
    pub(crate) fn page_of_device(&self) -> PageOfDevice {
        let memory = self.pool.cold_page(&mut self.pool.state());
        PageOfDevice { memory: Some(memory), pool: self.pool.clone() }
    }

    /// Moves what positions from its end on are written to, with the positions before in the same page, to other memory, and leaves
    /// the old to a device that may still write to it.
    pub(crate) fn leave_tail(&mut self) {
        let Self { pool, pages, len, .. } = self;
        for page in &mut pages[*len / PAGE..] {
            // Pages that are reserved are its own.
            let Some(memory) = Arc::get_mut(page).and_then(|page| page.memory.as_mut()) else { continue };
            let mut state = pool.state();
            let mut fresh = pool.cold_page(&mut state);
            fresh.bytes_mut().copy_from_slice(memory.bytes());
            state.left.push(std::mem::replace(memory, fresh));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{KvFormat, KvPool};
    use duet_kernels::attention::KvLayout;
    use duet_types::Tokens;

    fn pool() -> KvPool {
        KvPool::new(KvLayout::uniform(1, 1, 16, KvFormat::F16), 4)
    }

    fn numbers(table: &KvTable, region: &Region) -> Vec<Option<usize>> {
        table.memory().map(|page| page.number_in(region)).collect()
    }

    #[cfg(unix)]
    #[test]
    fn pages_of_the_first_slab_lie_in_one_region() {
        let pool = pool();
        let mut table = pool.table();
        table.reserve(Tokens(130)).unwrap();
        let region = table.memory().next().unwrap().region().unwrap();
        assert_eq!(numbers(&table, &region), [Some(0), Some(1), Some(2)]);
        let page = table.page_of_device();
        assert_eq!((page.number_in(&region), pool.free_pages()), (Some(3), 1), "it is beyond the pool's own");
        drop(page);
        assert_eq!(table.page_of_device().number_in(&region), Some(3));
    }

    #[cfg(unix)]
    #[test]
    fn what_a_device_may_still_write_to_is_nobodys() {
        let pool = pool();
        let mut table = pool.table();
        table.reserve(Tokens(70)).unwrap();
        table.grow(70);
        table.reserve(Tokens(80)).unwrap();
        let region = table.memory().next().unwrap().region().unwrap();
        for page in &mut table.pages {
            Arc::get_mut(page).unwrap().memory.as_mut().unwrap().bytes_mut().fill(5);
        }
        let before = numbers(&table, &region);
        table.leave_tail();
        let after = numbers(&table, &region);
        assert_eq!(before[0], after[0], "nothing of the pass goes there");
        assert!(before[1..].iter().all(|page| !after.contains(page)));
        assert!(table.memory().all(|page| page.bytes().iter().all(|&byte| byte == 5)));
        table.page_of_device().leave();
        drop(table);
        // Neither comes back, and the pool has as many pages as before.
        assert_eq!(pool.free_pages(), 4);
        let mut table = pool.table();
        table.reserve(Tokens(256)).unwrap();
        let left = pool.state().left.len();
        let again = numbers(&table, &region);
        assert!(before[1..].iter().all(|page| !again.contains(page)), "{again:?}");
        assert_eq!((left, again.len()), (3, 4));
    }
}
