//! What tables hold, and what they count as, whatever becomes of them.

use super::*;
use duet_kernels::attention::{KvFormat, KvLayout, Lasting};
use proptest::prelude::*;

const WINDOW: usize = 20;
const LAYERS: usize = 4;

fn pool(capacity: usize) -> KvPool {
    let layout = KvLayout { lasting: Lasting::First(1), ..KvLayout::uniform(LAYERS, 1, 16, KvFormat::F16) };
    KvPool::with_windows(layout, Tokens(WINDOW as u32), capacity)
}

/// A table, and what was written to its positions.
struct Written {
    table: KvTable,
    positions: Vec<u8>,
}

impl Written {
    fn new(pool: &KvPool) -> Self {
        Self { table: pool.table(), positions: Vec::new() }
    }

    /// Rows of a pass, of which the first `accepted` stay.
    fn grow(&mut self, rows: usize, accepted: usize, next: &mut u8) -> bool {
        if self.table.reserve(Tokens(rows as u32)).is_err() {
            return false;
        }
        let layout = *self.table.layout();
        let mut source = PageMemory::new(layout);
        let (len, mut positions) = (self.table.len, Vec::new());
        let (first, mut pages) = self.table.tail(Tokens(rows as u32));
        for row in 0..rows {
            *next = next.wrapping_add(1);
            source.bytes_mut().fill(*next & 0x3f);
            let at = len + row - first;
            layout.copy_position(source.bytes(), 0, pages[at / PAGE].bytes_mut(), at % PAGE);
            positions.push(*next & 0x3f);
        }
        self.table.grow(accepted);
        self.table.truncate(self.table.len());
        self.positions.extend(&positions[..accepted]);
        true
    }

    /// All that may still be looked at is there.
    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.table.len, self.positions.len());
        let layout = *self.table.layout();
        let pages: Vec<_> = self.table.memory().collect();
        let seen = match self.table.cuts_from().as_usize() {
            0 => 0,
            from => from.saturating_sub(WINDOW),
        };
        for (position, &written) in self.positions.iter().enumerate() {
            let mut expected = PageMemory::new(layout);
            expected.bytes_mut().fill(written);
            let looked_at = if position >= seen { LAYERS } else { 1 };
            for layer in 0..looked_at {
                let ([mut keys, mut values], [mut own, mut other]) = ([[0.0; 16]; 2], [[0.0; 16]; 2]);
                let page = pages[position / PAGE].bytes();
                layout.read_position(page, (layer, 0, position % PAGE), &mut keys, &mut values);
                layout.read_position(expected.bytes(), (layer, 0, 0), &mut own, &mut other);
                prop_assert_eq!((keys, values), (own, other), "{} of layer {}", position, layer);
            }
        }
        Ok(())
    }
}

/// The pool's books are those of the tables that there are.
fn count(pool: &KvPool, tables: &[Written]) -> Result<(), TestCaseError> {
    let mut distinct: Vec<_> = tables.iter().flat_map(|of| &of.table.pages).collect();
    distinct.sort_by_key(|page| Arc::as_ptr(page));
    distinct.dedup_by_key(|page| Arc::as_ptr(page));
    let lasting = distinct.iter().filter(|page| page.kept == Kept::Lasting).count();
    let used = distinct.len() - lasting + pool.count_as(lasting);
    prop_assert!(used <= pool.capacity_pages());
    prop_assert_eq!(pool.free_pages(), pool.capacity_pages() - used);
    Ok(())
}

proptest! {
    #[test]
    fn what_may_be_looked_at_is_there(
        capacity in 2_usize..7,
        steps in prop::collection::vec((0_u8..8, 0_usize..3, 1_usize..60, 0_usize..700), 1..60),
    ) {
        let pool = pool(capacity);
        let mut tables: Vec<Written> = (0..3).map(|_| Written::new(&pool)).collect();
        let mut next = 0;
        for (what, which, rows, other) in steps {
            match what {
                0..4 => { tables[which].grow(rows, other.min(rows), &mut next); }
                4 => {
                    let Written { table, positions } = &mut tables[which];
                    let len = table.cut(Tokens(other as u32));
                    table.truncate(Tokens(other as u32));
                    positions.truncate(len.as_usize());
                }
                5 => {
                    let Written { table, positions } = &tables[which];
                    if let Ok(table) = table.fork(Tokens(other as u32)) {
                        let positions = positions[..table.len].to_vec();
                        tables[(which + 1) % 3] = Written { table, positions };
                    }
                }
                6 => {
                    let mut file = Vec::new();
                    tables[which].table.write_to(&mut file).unwrap();
                    let prefix = tables[which].table.cut(Tokens(other as u32));
                    let positions = tables[which].positions[..prefix.as_usize()].to_vec();
                    tables[which] = Written::new(&pool);
                    if let Ok(table) = pool.read_table_of(Tokens(rows as u32 * 9), prefix, &mut file.as_slice()) {
                        tables[which] = Written { table, positions };
                    }
                }
                _ => tables[which].table.expect(Tokens(other as u32)),
            }
            pool.warm();
            tables.iter().try_for_each(Written::check)?;
            count(&pool, &tables)?;
        }
        drop(tables);
        prop_assert_eq!(pool.free_pages(), pool.capacity_pages());
    }
}

#[test]
fn nothing_of_what_has_passed_is_an_empty_table() {
    let pool = pool(4);
    let (mut long, mut next) = (Written::new(&pool), 0);
    long.table.expect(Tokens(300));
    assert!(long.grow(130, 130, &mut next));
    long.table.expect(Tokens(300));
    assert!(long.table.cuts_from() > Tokens::ZERO);
    let mut file = Vec::new();
    long.table.write_to(&mut file).unwrap();
    let mut empty =
        Written { table: pool.read_table(Tokens::ZERO, &mut file.as_slice()).unwrap(), positions: Vec::new() };
    assert_eq!((empty.table.pages(), empty.table.cuts_from()), (0, Tokens::ZERO));
    assert!(empty.grow(30, 30, &mut next));
    empty.check().unwrap();
}

#[test]
fn a_pool_of_little_memory_holds_many_positions() {
    let pool = pool(6);
    let mut long = Written::new(&pool);
    let mut next = 0;
    while long.grow(32, 32, &mut next) {}
    // Three whole pages at most for a window and a pass, and a quarter of each other one.
    assert!(long.table.len >= 12 * PAGE, "{}", long.table.len);
    long.check().unwrap();
}
