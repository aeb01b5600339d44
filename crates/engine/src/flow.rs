//! Flows: the KV of requests that ended, kept for the turns that follow.
//!
//! A kept table holds exactly the tokens recorded with it. A new request takes over the table it continues, or forks
//! one that begins like it; so a second chat turn computes only what is new, and an agent's common instructions are
//! computed once. Flows are found by their tokens: a client need not name them, and one whose history was edited gets
//! exactly the part that still holds. Tables are given up, least recently used first, when pages are wanted.
//! (Agent.xpu §4.1: flows are stateful, the memory manager reclaims in the background)

use crate::backend::Table;
use duet_types::{TokenId, Tokens};

/// Tables kept, least recently used first.
#[derive(Debug)]
pub(crate) struct Flows<T> {
    kept: Vec<Flow<T>>,
}

#[derive(Debug)]
struct Flow<T> {
    tokens: Vec<TokenId>,
    table: T,
}

impl<T: Table> Flows<T> {
    pub(crate) fn new() -> Self {
        Self { kept: Vec::new() }
    }

    /// How many tables are kept.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// A table that holds the longest known beginning of `prompt`, but never its last token, whose result is wanted.
    /// O(flows × prompt) token comparisons; copies at most one page.
    pub(crate) fn attach(&mut self, prompt: &[TokenId]) -> Option<T> {
        let wanted = &prompt[..prompt.len() - 1];
        let common =
            |flow: &Flow<T>| flow.tokens.iter().zip(wanted).take_while(|(kept, wanted)| kept == wanted).count();
        let (index, prefix) =
            self.kept.iter().map(common).enumerate().max_by_key(|&(index, prefix)| (prefix, index))?;
        if prefix == 0 {
            return None;
        }
        let mut flow = self.kept.remove(index);
        if prefix == flow.tokens.len() {
            // The flow goes on, and nobody else can want what it had.
            return Some(flow.table);
        }
        let prefix = Tokens(prefix as u32);
        match flow.table.fork(prefix) {
            Ok(table) => {
                self.kept.push(flow);
                Some(table)
            }
            // No page is left for the copy: then the new branch replaces the old one.
            Err(_) => {
                flow.table.truncate(prefix);
                Some(flow.table)
            }
        }
    }

    /// Keeps a table that holds exactly `tokens`.
    pub(crate) fn keep(&mut self, tokens: Vec<TokenId>, table: T) {
        assert_eq!(tokens.len(), table.len().as_usize(), "a flow records what its table holds");
        if tokens.is_empty() {
            return;
        }
        // What another flow begins with is of no more use.
        self.kept.retain(|flow| !tokens.starts_with(&flow.tokens));
        self.kept.push(Flow { tokens, table });
        if self.kept.len() > FLOWS_MAX {
            self.give_up_oldest();
        }
    }

    /// Gives up the least recently used table. Returns whether there was one.
    pub(crate) fn give_up_oldest(&mut self) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        self.kept.remove(0);
        true
    }
}

/// Tables kept at most. Each is compared with every new prompt; memory usually runs out before.
const FLOWS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_model::{FakePool, FakeTable};

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte - b'a'))).collect()
    }

    fn flows(pool: &FakePool, texts: &[&str]) -> Flows<FakeTable> {
        let mut flows = Flows::new();
        for text in texts {
            flows.keep(tokens(text), pool.table_of(&tokens(text)));
        }
        flows
    }

    #[test]
    fn a_flow_that_goes_on_is_taken_over() {
        let pool = FakePool::new(100);
        let mut flows = flows(&pool, &["abc", "xyz"]);
        let table = flows.attach(&tokens("abcd")).unwrap();
        assert_eq!((table.len(), flows.len()), (Tokens(3), 1));
    }

    #[test]
    fn a_flow_that_branches_is_forked_at_the_longest_common_beginning() {
        let pool = FakePool::new(100);
        let mut flows = flows(&pool, &["abcde", "abxyz"]);
        let table = flows.attach(&tokens("abcxx")).unwrap();
        assert_eq!((table.contents(), flows.len()), (tokens("abc"), 2));
        assert!(flows.attach(&tokens("q")).is_none());
    }

    #[test]
    fn the_last_prompt_token_is_always_computed() {
        let pool = FakePool::new(100);
        let mut flows = flows(&pool, &["abc"]);
        assert_eq!(flows.attach(&tokens("abc")).unwrap().len(), Tokens(2));
        assert!(flows.attach(&tokens("a")).is_none());
    }

    #[test]
    fn without_a_page_for_the_copy_the_new_branch_replaces_the_old() {
        let pool = FakePool::new(1);
        let mut flows = flows(&pool, &["abcde"]);
        assert_eq!(flows.attach(&tokens("abx")).unwrap().contents(), tokens("ab"));
        assert_eq!(flows.len(), 0);
    }

    #[test]
    fn what_another_flow_begins_with_is_not_kept_twice() {
        let pool = FakePool::new(100);
        let flows = flows(&pool, &["abc", "ax", "abcde"]);
        assert_eq!(flows.len(), 2);
    }

    #[test]
    fn the_least_recently_used_is_given_up_first() {
        let pool = FakePool::new(100);
        let mut flows = flows(&pool, &["abc", "xyz"]);
        drop(flows.attach(&tokens("abq")));
        assert!(flows.give_up_oldest());
        assert!(flows.attach(&tokens("xyq")).is_none());
        assert!(flows.attach(&tokens("abq")).is_some());
        assert!(flows.give_up_oldest());
        assert!(!flows.give_up_oldest());
        assert_eq!(pool.used_pages(), 0);
    }
}
