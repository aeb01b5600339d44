//! The store in use: what one request leaves, the next of its task drafts from, and nobody else's.

use duet_history::{HistoryStore, Interaction, Limits, ModelFingerprint, TaskKey, TaskName, UserName};
use duet_speculate::suffix_automaton::{Matched, SuffixAutomaton};
use duet_types::{Bytes, TokenId, Tokens};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

fn key(user: &str, task: &str, model: u64) -> TaskKey {
    TaskKey { user: UserName::named(user), task: TaskName::named(task), model: ModelFingerprint(model) }
}

fn tokens(ids: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
    ids.into_iter().map(TokenId).collect()
}

fn open(path: &Path) -> HistoryStore {
    HistoryStore::open(path, Limits::default()).unwrap()
}

/// Whether all of `text` can be drafted.
fn knows(automata: &[Arc<SuffixAutomaton>], text: &[TokenId]) -> bool {
    let longest = |automaton: &Arc<SuffixAutomaton>| {
        text.iter().fold(Matched::default(), |place, &token| automaton.step(place, token)).len
    };
    automata.iter().any(|automaton| longest(automaton) as usize == text.len())
}

/// What a request finds once the background has done what it was asked for.
fn found(store: &HistoryStore, key: &TaskKey) -> Vec<Arc<SuffixAutomaton>> {
    let _ = store.for_task(key);
    store.flush();
    store.for_task(key)
}

#[test]
fn the_next_request_drafts_from_the_last_and_so_does_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let (ann, first, second) = (key("ann", "mail", 1), tokens(100..140), tokens(200..240));
    let store = open(&path);
    assert!(found(&store, &ann).is_empty());
    store.commit(Interaction::new(ann.clone(), &tokens(1..9), &first));
    store.flush();
    assert!(knows(&store.for_task(&ann), &[tokens(5..9), first.clone()].concat()));
    store.commit(Interaction::new(ann.clone(), &[], &second));
    store.flush();
    let running = store.for_task(&ann);
    assert!(knows(&running, &first) && knows(&running, &second));
    drop(store);

    let store = open(&path);
    assert!(store.for_task(&ann).is_empty(), "nobody waits for the file");
    assert!(knows(&found(&store, &ann), &first) && knows(&found(&store, &ann), &second));
    store.commit(Interaction::new(ann.clone(), &[], &tokens(300..340)));
    store.flush();
    assert!(knows(&store.for_task(&ann), &tokens(300..340)));
    assert!(!knows(&running, &tokens(300..340)), "what a request drafts from does not change under it");
}

/// A task that nobody asked for yet has its history, too, after a commit.
#[test]
fn a_commit_brings_the_task_into_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let ann = key("ann", "mail", 1);
    let store = open(&path);
    store.commit(Interaction::new(ann.clone(), &[], &tokens(1..50)));
    drop(store);
    let store = open(&path);
    store.commit(Interaction::new(ann.clone(), &[], &tokens(100..150)));
    store.flush();
    let automata = store.for_task(&ann);
    assert!(knows(&automata, &tokens(1..50)) && knows(&automata, &tokens(100..150)));
}

#[test]
fn memory_is_bounded_and_the_tasks_used_last_stay() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { index: Bytes(4 << 20), ..Limits::default() };
    let store = HistoryStore::open(&folder.path().join("history"), limits).unwrap();
    let task = |number: u32| key("ann", &format!("task {number}"), 1);
    for number in 0..40 {
        for part in 0..8 {
            let begin = number * 10_000 + part * 1000;
            store.commit(Interaction::new(task(number), &[], &tokens(begin..begin + 900)));
        }
        store.flush();
        assert!(store.stats().index <= limits.index, "{:?}", store.stats());
        assert!(knows(&store.for_task(&task(number)), &tokens(number * 10_000 + 7000..number * 10_000 + 7900)));
    }
    let in_memory = store.stats().tasks;
    assert!((2..20).contains(&in_memory), "{in_memory}");
    assert!(knows(&found(&store, &task(0)), &tokens(7000..7900)), "what went from memory is read again");
    assert_eq!(store.list().len(), 40);
}

/// More at once than the queue holds: some are dropped and counted, nothing waits or breaks.
#[test]
fn too_many_at_once_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("history"));
    let ann = key("ann", "mail", 1);
    for number in 0..3000 {
        store.commit(Interaction::new(ann.clone(), &[], &tokens(number..number + 50)));
    }
    store.flush();
    let kept: u64 = store.list().iter().map(|task| task.interactions).sum();
    assert_eq!(kept + store.stats().dropped, 3000);
    assert!(kept >= 256);
}

#[test]
fn an_answer_that_is_too_long_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { task: Tokens(4000), ..Limits::default() };
    let store = HistoryStore::open(&folder.path().join("history"), limits).unwrap();
    let ann = key("ann", "mail", 1);
    store.commit(Interaction::new(ann.clone(), &[], &tokens(0..3000)));
    store.flush();
    assert!(knows(&store.for_task(&ann), &tokens(0..1000)));
    assert!(!knows(&store.for_task(&ann), &tokens(500..1500)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is committed, in whatever order, over restarts: each key finds its own texts and no other's.
    #[test]
    fn nothing_is_drafted_for_another_user_task_or_model(
        commits in prop::collection::vec((0_usize..3, 0_usize..2, 0_u64..2, any::<bool>()), 1..40),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let keys: Vec<_> = commits.iter().map(|&(user, task, model, _)| {
            key(["", "ann", "ben"][user], ["", "mail"][task], model)
        }).collect();
        // No token is in two answers, so who finds one found that answer.
        let answer = |number: usize| tokens(number as u32 * 100..number as u32 * 100 + 30);
        let mut store = open(&path);
        for (number, (key, &(.., reopen))) in keys.iter().zip(&commits).enumerate() {
            store.commit(Interaction::new(key.clone(), &[], &answer(number)));
            if reopen {
                drop(store);
                store = open(&path);
            }
        }
        for key in &keys {
            let automata = found(&store, key);
            for (number, of) in keys.iter().enumerate() {
                prop_assert_eq!(knows(&automata, &answer(number)), of == key);
                prop_assert_eq!(knows(&automata, &answer(number)[..1]), of == key);
            }
        }
    }
}
