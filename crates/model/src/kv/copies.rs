//! Copies of tables, and what they are worth after anything that can happen to the tables.

use super::*;
use proptest::prelude::*;

/// A table, and what was written to its positions: a number that was never written before, for each.
struct Written {
    table: KvTable,
    positions: Vec<u32>,
}

/// What somebody copied, under the name that it had then.
struct Copy {
    lineage: LineageId,
    positions: Vec<u32>,
}

/// Who reads the rows of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// The crew, where they are.
    Crew,
    /// A device, which copies what they see.
    Device,
}

/// Tables, and copies that were made of them.
struct Bed {
    pool: KvPool,
    tables: Vec<Written>,
    copies: Vec<Copy>,
    next: u32,
}

impl Bed {
    fn new() -> Self {
        let pool = KvPool::new(KvLayout::uniform(1, 1, 16, KvFormat::F16), 64);
        let tables = (0..3).map(|_| Written { table: pool.table(), positions: Vec::new() }).collect();
        Self { pool, tables, copies: Vec::new(), next: 0 }
    }

    /// Rows of a pass, of which the first `accepted` stay.
    fn pass(&mut self, which: usize, rows: u32, accepted: u32, reader: Reader) {
        let Written { table, positions } = &mut self.tables[which];
        if table.reserve(Tokens(rows)).is_err() {
            return;
        }
        positions.extend(self.next..self.next + rows);
        self.next += rows;
        if reader == Reader::Device {
            table.copied_to(Tokens(positions.len() as u32));
            self.copies.push(Copy { lineage: table.lineage(), positions: positions.clone() });
        }
        if accepted > 0 {
            table.grow(accepted.min(rows) as usize);
        }
        if accepted < rows {
            table.truncate(table.len());
        }
        positions.truncate(table.len().as_usize());
    }

    fn cut(&mut self, which: usize, len: u32) {
        let Written { table, positions } = &mut self.tables[which];
        table.truncate(Tokens(len));
        positions.truncate(len as usize);
    }

    fn fork(&mut self, which: usize, len: u32) {
        let Written { table, positions } = &self.tables[which];
        let Ok(table) = table.fork(Tokens(len)) else { return };
        let positions = positions[..table.len().as_usize()].to_vec();
        self.tables[(which + 1) % 3] = Written { table, positions };
    }

    /// To a file and back.
    fn restore(&mut self, which: usize) {
        let Written { table, .. } = &mut self.tables[which];
        let mut file = Vec::new();
        table.write_to(&mut file).unwrap();
        if let Ok(back) = self.pool.read_table(table.len(), &mut file.as_slice()) {
            *table = back;
        }
    }

    /// Each copy is of each table what the table says.
    fn check(&self) -> Result<(), TestCaseError> {
        for Written { table, positions } in &self.tables {
            for copy in &self.copies {
                let same = table.unchanged_since(copy.lineage).as_usize();
                prop_assert!(same <= positions.len());
                let same = same.min(copy.positions.len());
                prop_assert_eq!(&copy.positions[..same], &positions[..same]);
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_copy_is_worth_what_its_table_says(
        steps in prop::collection::vec((0_u8..8, 0_usize..3, 1_u32..90, 0_u32..120), 1..40),
    ) {
        let mut bed = Bed::new();
        for (what, which, rows, other) in steps {
            match what {
                0 | 1 => bed.pass(which, rows, rows, Reader::Device),
                2 => bed.pass(which, rows, rows, Reader::Crew),
                3 => bed.pass(which, rows, other % (rows + 1), Reader::Device),
                4 => bed.pass(which, rows, 0, Reader::Device),
                5 => bed.cut(which, other),
                6 => bed.fork(which, other),
                _ => bed.restore(which),
            }
            bed.check()?;
        }
    }
}

/// It would be safe to say that no copy is worth anything: what nobody wrote again is.
#[test]
fn a_copy_of_what_only_grew_is_worth_all_of_it() {
    let mut bed = Bed::new();
    for _ in 0..5 {
        bed.pass(0, 50, 50, Reader::Device);
    }
    let lineages: Vec<_> = bed.copies.iter().map(|copy| copy.lineage).collect();
    assert!(lineages.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(bed.tables[0].table.unchanged_since(lineages[0]), Tokens(250));
    // Drafts that come and go behind it change nothing.
    for _ in 0..20 {
        bed.pass(0, 4, 2, Reader::Crew);
    }
    assert_eq!(bed.tables[0].table.lineage(), lineages[0]);
}
