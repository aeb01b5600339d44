//! The keys and values that a draft model has of texts: found by their tokens, given up by who used them longest ago.
//!
//! A sequence takes its table for a round of drafting and puts it back with what the round added, wrong guesses included.
//! Next time what is still right of it is found by its tokens. So a table needs no owner: one that is given up, or whose
//! request has ended, is read again, or is there for the turn that follows.
//!
//! Invariants: a table holds the rows of its tokens and no others; nothing is found under another tenant; there are at most
//! [`TABLES`] tables, and pages are those of a pool of their own, so that a sequence that verifies never waits for one.

use crate::backend::Table;
use duet_types::{TenantId, TokenId, Tokens};

/// Tables at most: more sequences than ever decode together.
const TABLES: usize = 64;

/// Tables that nobody uses now, the one that was used last at the end.
#[derive(Debug)]
pub(super) struct Tables<T>(Vec<Entry<T>>);

#[derive(Debug)]
struct Entry<T> {
    tenant: TenantId,
    tokens: Vec<TokenId>,
    table: T,
}

impl<T> Default for Tables<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Table> Tables<T> {
    /// The table with the longest common beginning with `text`, cut to it; its length is what it holds of the text.
    pub(super) fn take(&mut self, tenant: TenantId, text: &[TokenId]) -> Option<T> {
        let common = |entry: &Entry<T>| entry.tokens.iter().zip(text).take_while(|(one, other)| one == other).count();
        let of_tenant = self.0.iter().enumerate().filter(|(_, entry)| entry.tenant == tenant);
        let (at, len) = of_tenant.map(|(at, entry)| (at, common(entry))).max_by_key(|&(_, len)| len)?;
        if len == 0 {
            return None;
        }
        if self.0[at].tokens.len() - len > OWN_MAX {
            // It goes on elsewhere, for somebody else perhaps.
            return self.0[at].table.fork(Tokens(len as u32)).ok();
        }
        let mut table = self.0.remove(at).table;
        table.truncate(Tokens(len as u32));
        Some(table)
    }

    /// Puts one back that holds these tokens.
    pub(super) fn put(&mut self, tenant: TenantId, tokens: Vec<TokenId>, table: T) {
        if tokens.is_empty() {
            return;
        }
        if self.0.len() == TABLES {
            self.0.remove(0);
        }
        self.0.push(Entry { tenant, tokens, table });
    }

    /// Gives up the one that was used longest ago. Whether there was one.
    pub(super) fn give_up(&mut self) -> bool {
        let any = !self.0.is_empty();
        if any {
            self.0.remove(0);
        }
        any
    }

    /// Gives all up.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Tokens that a table may hold beyond a text and still be its own: a draft that was not right.
const OWN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_model::FakePool;

    fn text(tokens: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
        tokens.into_iter().map(TokenId).collect()
    }

    #[test]
    fn a_table_is_found_by_its_tokens_for_its_tenant_and_cut_to_what_is_right() {
        let pool = FakePool::new(100);
        let mut tables = Tables::default();
        let [short, long] = [text(0..10), text(0..200)];
        tables.put(TenantId(1), long.clone(), pool.table_of(&long));
        assert!(tables.take(TenantId(2), &short).is_none());
        assert!(tables.take(TenantId(1), &text([7, 8])).is_none());
        let forked = tables.take(TenantId(1), &short).unwrap();
        assert_eq!((forked.contents(), tables.len()), (short.clone(), 1), "the long one is somebody else's");
        let wrong: Vec<TokenId> = [&short[..], &text([90, 91])].concat();
        tables.put(TenantId(1), wrong.clone(), pool.table_of(&wrong));
        let own = tables.take(TenantId(1), &[&short[..], &text([90, 95])].concat()).unwrap();
        assert_eq!((own.contents(), tables.len()), ([&short[..], &text([90])].concat(), 1));
    }

    #[test]
    fn there_is_a_bound_and_the_oldest_goes_first() {
        let pool = FakePool::new(1000);
        let mut tables = Tables::default();
        for first in 0..TABLES as u32 + 1 {
            tables.put(TenantId(0), text([first]), pool.table_of(&text([first])));
        }
        assert_eq!((tables.len(), pool.used_pages()), (TABLES, TABLES));
        assert!(tables.take(TenantId(0), &text([0])).is_none() && tables.take(TenantId(0), &text([1])).is_some());
        while tables.give_up() {}
        assert_eq!(pool.used_pages(), 0);
    }
}
