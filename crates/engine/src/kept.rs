//! Kept KV: what ended requests left, for the turns that follow.
//!
//! An entry holds exactly the keys and values of the tokens recorded with it, in memory or on disk, and goes by the request
//! that left it. A new request takes over the entry that it continues, or forks one that begins like it; it also forks what
//! others wait to continue, and background work forks what a person left. So a second chat turn computes only what is new,
//! and an agent's common instructions are computed once, but for a page's part where a model has a recurrent state. Entries
//! are found by their tokens, within one tenant: a client need not name them, one whose history was edited gets exactly the
//! part that still holds, and nobody learns from response times what another tenant asked. One whose windows have passed, since
//! it was too long for memory, is gone on from near its end only. Which entries stay is the scheduler's to decide (its memory
//! manager); here is only where they are.

use crate::backend::Table;
use crate::request::FlowKey;
use crate::spill::SpillFile;
use duet_scheduler::{Prefix, Source};
use duet_types::{Class, FlowId, RequestId, TenantId, TokenId, Tokens};
use std::sync::Arc;

/// All entries, oldest first.
#[derive(Debug)]
pub(crate) struct KeptStore<T> {
    entries: Vec<Entry<T>>,
    /// Tables may be cut at multiples of this, beside their ends.
    cuts: Tokens,
}

/// Whose an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    pub(crate) flow: FlowId,
    pub(crate) key: Option<FlowKey>,
    /// Of the request.
    pub(crate) class: Class,
}

/// Who asks what there is of a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) class: Class,
    /// Entries that other open requests are to continue.
    pub(crate) others_want: &'a [RequestId],
}

impl Asker<'_> {
    /// Whether it may have the entry for itself.
    fn may_take(&self, request: RequestId, owner: &Owner) -> bool {
        !self.others_want.contains(&request) && is_worth(self.class, owner)
    }
}

/// Whether what a request of this class does with an entry may be all that is left of it.
fn is_worth(class: Class, owner: &Owner) -> bool {
    class == Class::Reactive || owner.class == Class::Proactive
}

#[derive(Debug)]
struct Entry<T> {
    request: RequestId,
    owner: Owner,
    tokens: Vec<TokenId>,
    /// It may be cut behind this token, and at its end.
    cuts_from: Tokens,
    place: Place<T>,
}

#[derive(Debug)]
enum Place<T> {
    Memory(T),
    /// On its way to disk.
    Moving,
    Disk(Arc<SpillFile>),
}

/// Where an entry is, for those who look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvPlace {
    /// In memory, or on its way to disk.
    Memory,
    /// On disk.
    Disk,
}

/// What there is of a prompt.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Nothing,
    Here(T, Source),
    /// To be read from disk; the entry stays until the reading is over.
    OnDisk {
        file: Arc<SpillFile>,
        prefix: Tokens,
        source: Source,
    },
    /// On its way to disk, where it can be read from then on.
    Moving,
}

impl<T: Table> KeptStore<T> {
    pub(crate) fn new(cuts: Tokens) -> Self {
        Self { entries: Vec::new(), cuts }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries: whose, how many tokens, where.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Owner, Tokens, KvPlace)> {
        self.entries.iter().map(|entry| {
            let place = if matches!(entry.place, Place::Disk(_)) { KvPlace::Disk } else { KvPlace::Memory };
            (&entry.owner, Tokens(entry.tokens.len() as u32), place)
        })
    }

    /// The entry with the longest common beginning with `prompt`, never its last token, whose result is wanted; and
    /// the flow that it is of, if the prompt continues it. O(entries × prompt) token comparisons.
    pub(crate) fn prefix(&self, tenant: TenantId, prompt: &[TokenId]) -> Option<(Prefix, Option<&Owner>)> {
        let (index, tokens) = self.longest(tenant, prompt)?;
        let entry = &self.entries[index];
        let continues = tokens.as_usize() == entry.tokens.len();
        Some((Prefix { of: entry.request, tokens }, continues.then_some(&entry.owner)))
    }

    /// What there is for `prompt`. Copies at most one page.
    pub(crate) fn find(&mut self, asker: Asker<'_>, prompt: &[TokenId]) -> Found<T> {
        let Some((index, prefix)) = self.longest(asker.tenant, prompt) else { return Found::Nothing };
        let entry = &mut self.entries[index];
        let (request, whole) = (entry.request, prefix.as_usize() == entry.tokens.len());
        let takes = whole && asker.may_take(request, &entry.owner);
        match &entry.place {
            Place::Moving => Found::Moving,
            Place::Disk(file) => {
                let source = if takes { Source::TakenOver(request) } else { Source::Forked(request) };
                Found::OnDisk { file: Arc::clone(file), prefix, source }
            }
            Place::Memory(_) if takes => self.take(index, prefix),
            Place::Memory(table) => match table.fork(prefix) {
                Ok(table) => Found::Here(table, Source::Forked(request)),
                // No page is left for the copy: then the new branch replaces the old one.
                Err(_) => self.take(index, prefix),
            },
        }
    }

    fn take(&mut self, index: usize, prefix: Tokens) -> Found<T> {
        let entry = self.entries.remove(index);
        match entry.place {
            Place::Memory(mut table) => {
                table.truncate(prefix);
                Found::Here(table, Source::TakenOver(entry.request))
            }
            Place::Moving | Place::Disk(_) => Found::Nothing,
        }
    }

    fn longest(&self, tenant: TenantId, prompt: &[TokenId]) -> Option<(usize, Tokens)> {
        let wanted = &prompt[..prompt.len() - 1];
        let common =
            |entry: &Entry<T>| entry.tokens.iter().zip(wanted).take_while(|(kept, wanted)| kept == wanted).count();
        let own = self.entries.iter().enumerate().filter(|(_, entry)| entry.owner.tenant == tenant);
        let usable = |(index, entry): (usize, &Entry<T>)| {
            let common = common(entry);
            let is_whole = common == entry.tokens.len();
            let cut = common - common % self.cuts.as_usize().max(1);
            let prefix = match cut {
                _ if is_whole => common,
                _ if cut < entry.cuts_from.as_usize() => 0,
                _ => cut,
            };
            // Of two with as much, the one that goes on, and the later.
            (prefix, is_whole, index)
        };
        let (prefix, _, index) = own.map(usable).max()?;
        (prefix > 0).then_some((index, Tokens(prefix as u32)))
    }

    /// Keeps a table that holds exactly `tokens`. Returns the entries that it replaces: those whose tokens it begins
    /// with, but for a person's where this is background work's.
    pub(crate) fn keep(&mut self, request: RequestId, owner: Owner, tokens: Vec<TokenId>, table: T) -> Vec<RequestId> {
        assert_eq!(tokens.len(), table.len().as_usize(), "an entry records what its table holds");
        let replaced = self.entries.iter().filter(|entry| {
            entry.owner.tenant == owner.tenant
                && !matches!(entry.place, Place::Moving)
                && is_worth(owner.class, &entry.owner)
                && tokens.starts_with(&entry.tokens)
        });
        let replaced: Vec<RequestId> = replaced.map(|entry| entry.request).collect();
        self.entries.retain(|entry| !replaced.contains(&entry.request));
        self.entries.push(Entry { request, owner, tokens, cuts_from: table.cuts_from(), place: Place::Memory(table) });
        replaced
    }

    /// Gives an entry up. It may be gone already.
    pub(crate) fn forget(&mut self, request: RequestId) {
        self.entries.retain(|entry| entry.request != request);
    }

    /// Takes an entry's table away, to bring it to disk.
    pub(crate) fn start_moving(&mut self, request: RequestId) -> Option<T> {
        let entry = self.entries.iter_mut().find(|entry| entry.request == request)?;
        match std::mem::replace(&mut entry.place, Place::Moving) {
            Place::Memory(table) => Some(table),
            other => {
                entry.place = other;
                None
            }
        }
    }

    /// An entry is on disk now, or still in memory. It may have been given up meanwhile.
    pub(crate) fn moved(&mut self, request: RequestId, place: Result<SpillFile, T>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.request == request) {
            entry.place = match place {
                Ok(file) => Place::Disk(Arc::new(file)),
                Err(table) => Place::Memory(table),
            };
        }
    }

    /// Gives up everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_model::{FakePool, FakeTable};

    const TENANT: TenantId = TenantId(0);

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte - b'a'))).collect()
    }

    fn owner(tenant: TenantId) -> Owner {
        Owner { tenant, flow: FlowId(0), key: None, class: Class::Reactive }
    }

    /// Entry `i` is left by request `i`.
    fn kept(pool: &FakePool, texts: &[&str]) -> KeptStore<FakeTable> {
        let mut kept = KeptStore::new(Tokens(1));
        for (index, text) in texts.iter().enumerate() {
            kept.keep(RequestId(index as u64), owner(TENANT), tokens(text), pool.table_of(&tokens(text)));
        }
        kept
    }

    fn find(kept: &mut KeptStore<FakeTable>, prompt: &str) -> Option<(Vec<TokenId>, Source)> {
        find_as(kept, Asker { tenant: TENANT, class: Class::Reactive, others_want: &[] }, prompt)
    }

    fn find_as(kept: &mut KeptStore<FakeTable>, asker: Asker<'_>, prompt: &str) -> Option<(Vec<TokenId>, Source)> {
        match kept.find(asker, &tokens(prompt)) {
            Found::Here(table, source) => Some((table.contents(), source)),
            _ => None,
        }
    }

    #[test]
    fn a_flow_that_goes_on_is_taken_over() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abc", "xyz"]);
        assert_eq!(find(&mut kept, "abcd"), Some((tokens("abc"), Source::TakenOver(RequestId(0)))));
        assert_eq!(kept.len(), 1);
    }

    #[test]
    fn what_others_wait_for_is_forked_until_one_is_left() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abc"]);
        let asker = Asker { tenant: TENANT, class: Class::Reactive, others_want: &[RequestId(0)] };
        assert_eq!(find_as(&mut kept, asker, "abcd"), Some((tokens("abc"), Source::Forked(RequestId(0)))));
        assert_eq!(find(&mut kept, "abce"), Some((tokens("abc"), Source::TakenOver(RequestId(0)))));
    }

    #[test]
    fn background_work_leaves_a_person_what_the_person_left() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abc"]);
        let asker = Asker { tenant: TENANT, class: Class::Proactive, others_want: &[] };
        assert_eq!(find_as(&mut kept, asker, "abcd"), Some((tokens("abc"), Source::Forked(RequestId(0)))));
        let (longer, of_background) = (tokens("abcde"), Owner { class: Class::Proactive, ..owner(TENANT) });
        assert!(kept.keep(RequestId(8), of_background, longer.clone(), pool.table_of(&longer)).is_empty());
        assert_eq!(find(&mut kept, "abcx"), Some((tokens("abc"), Source::TakenOver(RequestId(0)))));
        assert_eq!(find_as(&mut kept, asker, "abcdef"), Some((longer, Source::TakenOver(RequestId(8)))));
    }

    #[test]
    fn a_flow_that_branches_is_forked_at_the_longest_common_beginning() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abcde", "abxyz"]);
        assert_eq!(find(&mut kept, "abcxx"), Some((tokens("abc"), Source::Forked(RequestId(0)))));
        assert_eq!(find(&mut kept, "q"), None);
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn tables_are_cut_where_they_may_be() {
        let pool = FakePool::new(100);
        let mut kept = KeptStore { cuts: Tokens(4), ..kept(&pool, &["abcdefg"]) };
        assert_eq!(find(&mut kept, "abcdefx"), Some((tokens("abcd"), Source::Forked(RequestId(0)))));
        assert_eq!(find(&mut kept, "abcx"), None);
        assert_eq!(find(&mut kept, "abcdefgh"), Some((tokens("abcdefg"), Source::TakenOver(RequestId(0)))));
    }

    #[test]
    fn an_entry_whose_windows_have_passed_is_gone_on_from_near_its_end() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abcdefg"]);
        kept.entries[0].cuts_from = Tokens(5);
        assert_eq!(find(&mut kept, "abcdx"), None);
        assert_eq!(kept.prefix(TENANT, &tokens("abcdx")).map(|(prefix, _)| prefix.tokens), None);
        assert_eq!(find(&mut kept, "abcdefx"), Some((tokens("abcdef"), Source::Forked(RequestId(0)))));
        assert_eq!(find(&mut kept, "abcdefgx"), Some((tokens("abcdefg"), Source::TakenOver(RequestId(0)))));
    }

    #[test]
    fn the_last_prompt_token_is_always_computed() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abc"]);
        assert_eq!(find(&mut kept, "abc").unwrap().0, tokens("ab"));
        assert_eq!(find(&mut kept, "a"), None);
    }

    #[test]
    fn without_a_page_for_the_copy_the_new_branch_replaces_the_old() {
        let pool = FakePool::new(1);
        let mut kept = kept(&pool, &["abcde"]);
        assert_eq!(find(&mut kept, "abx"), Some((tokens("ab"), Source::TakenOver(RequestId(0)))));
        assert_eq!(kept.len(), 0);
    }

    #[test]
    fn what_another_entry_begins_with_is_replaced() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abc", "ax"]);
        let longer = tokens("abcde");
        let replaced = kept.keep(RequestId(9), owner(TENANT), longer.clone(), pool.table_of(&longer));
        assert_eq!((replaced, kept.len()), (vec![RequestId(0)], 2));
    }

    #[test]
    fn tenants_never_see_each_other() {
        let pool = FakePool::new(100);
        let mut kept = kept(&pool, &["abc"]);
        assert!(kept.prefix(TenantId(1), &tokens("abcd")).is_none());
        let stranger = Asker { tenant: TenantId(1), class: Class::Reactive, others_want: &[] };
        assert!(matches!(kept.find(stranger, &tokens("abcd")), Found::Nothing));
        let longer = tokens("abcde");
        let replaced = kept.keep(RequestId(9), owner(TenantId(1)), longer.clone(), pool.table_of(&longer));
        assert!(replaced.is_empty());
    }

    #[test]
    fn a_prefix_names_the_flow_only_if_it_goes_on() {
        let pool = FakePool::new(100);
        let kept = kept(&pool, &["abc"]);
        let prompt = tokens("abcd");
        let (prefix, flow) = kept.prefix(TENANT, &prompt).unwrap();
        assert_eq!((prefix, flow), (Prefix { of: RequestId(0), tokens: Tokens(3) }, Some(&owner(TENANT))));
        assert_eq!(kept.prefix(TENANT, &tokens("abx")).unwrap().1, None);
    }
}
