//! What requests draft from: the automata of the tasks that were used last, behind a lock.
//!
//! The lock is held to copy a few pointers; automata are built, copied and freed outside. They are read-only here: the
//! [keeper](crate::keeper) publishes new ones in their place.
//! **Invariant:** a task's automata are found under its key only; together they take no more than the limit, or the
//! tasks used longest ago go.

use crate::key::TaskKey;
use duet_speculate::suffix_automaton::SuffixAutomaton;
use duet_types::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The automata of some tasks.
#[derive(Debug, Default)]
pub(crate) struct Index {
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    by_key: BTreeMap<TaskKey, Published>,
    /// Counts uses.
    uses: u64,
    bytes: Bytes,
}

#[derive(Debug)]
struct Published {
    automata: Vec<Arc<SuffixAutomaton>>,
    bytes: Bytes,
    last_use: u64,
}

impl Index {
    /// The automata of a task, oldest first, if they are here; a use of it.
    pub(crate) fn find(&self, key: &TaskKey) -> Option<Vec<Arc<SuffixAutomaton>>> {
        let mut tasks = self.lock();
        tasks.uses += 1;
        let now = tasks.uses;
        let task = tasks.by_key.get_mut(key)?;
        task.last_use = now;
        Some(task.automata.clone())
    }

    /// Puts a task's automata in the place of those it had; a use of it. Returns the tasks that went for it.
    pub(crate) fn publish(
        &self,
        key: &TaskKey,
        automata: Vec<Arc<SuffixAutomaton>>,
        bytes: Bytes,
        most: Bytes,
    ) -> Vec<TaskKey> {
        let mut gone: Vec<(TaskKey, Published)> = Vec::new();
        let mut tasks = self.lock();
        tasks.uses += 1;
        let new = Published { automata, bytes, last_use: tasks.uses };
        tasks.bytes += bytes;
        let replaced = tasks.by_key.insert(key.clone(), new);
        tasks.bytes = tasks.bytes.saturating_sub(replaced.as_ref().map_or(Bytes::ZERO, |task| task.bytes));
        while tasks.bytes > most {
            let Some(key) = tasks.least_recently_used() else { break };
            let Some(removed) = tasks.by_key.remove_entry(&key) else { break };
            tasks.bytes = tasks.bytes.saturating_sub(removed.1.bytes);
            gone.push(removed);
        }
        drop(tasks);
        // Freeing takes time, too: it is done without the lock.
        drop(replaced);
        gone.into_iter().map(|(key, _)| key).collect()
    }

    /// How many tasks are here, and the memory that they take.
    pub(crate) fn size(&self) -> (usize, Bytes) {
        let tasks = self.lock();
        (tasks.by_key.len(), tasks.bytes)
    }

    /// Whatever panicked while it held the lock, pointers and counts are whole.
    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tasks {
    fn least_recently_used(&self) -> Option<TaskKey> {
        self.by_key.iter().min_by_key(|(_, task)| task.last_use).map(|(key, _)| key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{ModelFingerprint, TaskName, UserName};

    fn key(user: &str, task: &str) -> TaskKey {
        TaskKey { user: UserName::named(user), task: TaskName::named(task), model: ModelFingerprint(1) }
    }

    #[test]
    fn the_task_used_longest_ago_goes_first() {
        let index = Index::default();
        let publish = |task| index.publish(&key("ann", task), vec![Arc::default()], Bytes(40), Bytes(100));
        assert_eq!((publish("a"), publish("b")), (vec![], vec![]));
        assert!(index.find(&key("ann", "a")).is_some());
        assert_eq!(publish("c"), [key("ann", "b")]);
        assert_eq!(publish("c"), []);
        assert_eq!(index.size(), (2, Bytes(80)));
        assert!(index.find(&key("ann", "b")).is_none());
        assert_eq!(index.publish(&key("ann", "a"), Vec::new(), Bytes(101), Bytes(100)).len(), 2);
        assert_eq!(index.size(), (0, Bytes(0)));
    }

    #[test]
    fn nothing_is_found_under_another_key() {
        let index = Index::default();
        index.publish(&key("ann", "a"), vec![Arc::default()], Bytes(1), Bytes(9));
        assert!(index.find(&key("ben", "a")).is_none());
        assert!(index.find(&key("", "a")).is_none());
        assert!(index.find(&TaskKey { model: ModelFingerprint(2), ..key("ann", "a") }).is_none());
        assert_eq!(index.find(&key("ann", "a")).map(|automata| automata.len()), Some(1));
    }
}
