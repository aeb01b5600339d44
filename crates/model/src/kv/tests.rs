//! Who owns pages, and when they come back.

use super::*;
use proptest::prelude::*;

fn pool(capacity: usize) -> KvPool {
    KvPool::new(KvLayout::uniform(1, 1, 16, KvFormat::F16), capacity)
}

fn grown(table: &mut KvTable, by: usize) -> Result<(), KvError> {
    table.reserve(Tokens(by as u32))?;
    table.grow(by);
    Ok(())
}

#[test]
fn pages_come_back_with_the_last_table() {
    let pool = pool(4);
    let mut first = pool.table();
    grown(&mut first, 100).unwrap();
    assert_eq!(pool.free_pages(), 2);
    let second = first.fork(Tokens(100)).unwrap();
    assert_eq!(pool.free_pages(), 1, "the partial page was copied, the full one shared");
    drop(first);
    assert_eq!(pool.free_pages(), 2);
    drop(second);
    assert_eq!(pool.free_pages(), 4);
}

#[test]
fn warm_pages_are_taken_first_and_are_never_more_than_there_are() {
    let pool = pool(3);
    for _ in 0..100 {
        pool.warm();
    }
    let warm = || pool.state().warm.len();
    assert_eq!(warm(), 3);
    let mut table = pool.table();
    grown(&mut table, 65).unwrap();
    assert_eq!((warm(), pool.free_pages()), (1, 1));
    pool.warm();
    assert_eq!(warm(), 1);
    drop(table);
    assert_eq!((warm(), pool.free_pages()), (3, 3), "what was used is warm");
}

#[test]
fn what_was_written_is_read_again() {
    let pool = pool(8);
    let mut table = pool.table();
    grown(&mut table, 100).unwrap();
    for page in &mut table.pages {
        Arc::get_mut(page).unwrap().memory.as_mut().unwrap().bytes_mut().fill(7);
    }
    let mut file = Vec::new();
    table.write_to(&mut file).unwrap();
    let whole = pool.read_table(Tokens(100), &mut file.as_slice()).unwrap();
    let bytes = |table: &KvTable| table.memory().map(|page| page.bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!((bytes(&whole), whole.len()), (bytes(&table), Tokens(100)));
    let prefix = pool.read_table(Tokens(64), &mut file.as_slice()).unwrap();
    assert_eq!((prefix.pages(), prefix.len()), (1, Tokens(64)));
    assert!(pool.read_table(Tokens(200), &mut file.as_slice()).is_err(), "the file is too short");
    drop((whole, prefix, table));
    assert_eq!(pool.free_pages(), 8);
}

/// A table whose last, partial page is another's as well, which no call leaves behind: [`KvTable::fork`] copies it.
fn sharing(pool: &KvPool) -> (KvTable, KvTable) {
    let mut table = pool.table();
    grown(&mut table, 2 * PAGE + 10).unwrap();
    let mut other = pool.table();
    (other.pages, other.len) = (table.pages.clone(), table.len);
    table.truncate(Tokens(PAGE as u32 + 10));
    (table, other)
}

/// The page behind it is this table's alone: leaving the shared one out would write 64 positions too late.
#[test]
#[should_panic(expected = "a page to write to is shared")]
fn a_shared_page_is_never_left_out_of_those_to_write_to() {
    let pool = pool(8);
    let (mut table, _other) = sharing(&pool);
    table.pages.extend(pool.take(1).unwrap());
    table.tail(Tokens(PAGE as u32));
}

#[test]
#[should_panic(expected = "no pages were reserved for 60 positions behind 74")]
fn pages_that_were_not_reserved_are_not_made_up() {
    let pool = pool(8);
    sharing(&pool).0.tail(Tokens(60));
}

#[test]
fn what_is_reserved_can_be_written_and_changes_no_other_table() {
    let pool = pool(8);
    let (mut table, other) = sharing(&pool);
    let before: Vec<_> = other.memory().map(|page| page.bytes().to_vec()).collect();
    assert_eq!(table.tail(Tokens::ZERO).1.len(), 0, "who writes nothing needs nothing");
    table.reserve(Tokens(60)).unwrap();
    let (first, pages) = table.tail(Tokens(60));
    assert_eq!((first, pages.len()), (PAGE, 2));
    pages.into_iter().for_each(|page| page.bytes_mut().fill(9));
    assert!(other.memory().map(PageMemory::bytes).eq(before), "it was copied");
}

#[test]
fn a_full_pool_refuses_and_changes_nothing() {
    let pool = pool(2);
    let mut table = pool.table();
    grown(&mut table, 64).unwrap();
    let error = table.reserve(Tokens(65)).unwrap_err();
    assert_eq!(error, KvError::Full { wanted: 2, free: 1, capacity: 2 });
    assert_eq!((table.len(), table.pages(), pool.free_pages()), (Tokens(64), 1, 1));
}

#[test]
fn a_copy_is_worth_what_was_not_written_since() {
    let pool = pool(8);
    let mut table = pool.table();
    grown(&mut table, 100).unwrap();
    let id = table.lineage();
    // A pass of 50 rows is copied while it is written, and given up.
    table.reserve(Tokens(50)).unwrap();
    table.copied_to(Tokens(150));
    assert_eq!(table.unchanged_since(id), Tokens(100), "rows of a pass are not its own yet");
    table.truncate(table.len());
    assert_ne!(table.lineage(), id);
    grown(&mut table, 60).unwrap();
    assert_eq!(table.unchanged_since(id), Tokens(100));
    let fork = table.fork(Tokens(70)).unwrap();
    assert_eq!((fork.unchanged_since(id), fork.unchanged_since(table.lineage())), (Tokens(70), Tokens::ZERO));
    // Of one that is accepted in part, what was accepted remains.
    let id = table.lineage();
    table.reserve(Tokens(20)).unwrap();
    table.copied_to(Tokens(180));
    table.grow(5);
    table.truncate(table.len());
    assert_eq!((table.len(), table.unchanged_since(id)), (Tokens(165), Tokens(165)));
    let mut file = Vec::new();
    table.write_to(&mut file).unwrap();
    let back = pool.read_table(Tokens(64), &mut file.as_slice()).unwrap();
    assert_eq!(back.unchanged_since(table.lineage()), Tokens::ZERO, "nobody knows whose file it was");
}

proptest! {
    /// Whatever tables do, pages are conserved and what a table may write is its own.
    #[test]
    fn pages_are_conserved(steps in proptest::collection::vec((0_u8..4, 0_usize..4, 0_u32..200), 1..60)) {
        let pool = pool(12);
        let mut tables: Vec<KvTable> = (0..4).map(|_| pool.table()).collect();
        for (what, which, tokens) in steps {
            match what {
                0 => { let _ = grown(&mut tables[which], tokens as usize); }
                1 => tables[which].truncate(Tokens(tokens)),
                2 => if let Ok(fork) = tables[which].fork(Tokens(tokens)) { tables[(which + 1) % 4] = fork; },
                _ => tables[which] = pool.table(),
            }
            let mut distinct: Vec<_> =
                tables.iter().flat_map(|table| table.pages.iter().map(Arc::as_ptr)).collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len() + pool.free_pages(), pool.capacity_pages());
            for table in &mut tables {
                if table.reserve(Tokens(1)).is_ok() {
                    let (first, pages) = table.tail(Tokens(1));
                    prop_assert!(first + pages.len() * PAGE > table.len().as_usize());
                    table.truncate(table.len());
                }
            }
        }
    }
}
