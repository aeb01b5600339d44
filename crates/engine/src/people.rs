//! How many people wait for an answer: what is only worth its time while nobody does asks here, between two steps.

use duet_types::Class;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests that people wait for, from their arrival to their end.
#[derive(Clone, Debug, Default)]
pub(crate) struct People(Arc<AtomicUsize>);

/// One of them. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(People);

impl People {
    /// A request has come; nobody waits for one of the background.
    pub(crate) fn came(&self, class: Class) -> Option<Waiting> {
        (class == Class::Reactive).then(|| {
            self.0.fetch_add(1, Ordering::Relaxed);
            Waiting(self.clone())
        })
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_wait_until_their_requests_end() {
        let people = People::default();
        let first = people.came(Class::Reactive);
        let second = people.came(Class::Reactive);
        assert!(people.came(Class::Proactive).is_none());
        assert_eq!(people.count(), 2);
        drop((first, second));
        assert_eq!(people.count(), 0);
    }
}
