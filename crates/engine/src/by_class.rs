//! Work for one thread, people's before the background's.
//!
//! Within a class it is done in the order in which it came. Whoever works takes [`Queue::next`] until there is none; where it
//! may panic, [`Queue::abandons`] sees to it that nobody waits for work that is never done.

use duet_types::Class;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What waits to be done.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    came: Condvar,
}

#[derive(Debug)]
struct Waiting<T> {
    people: VecDeque<T>,
    background: VecDeque<T>,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// Nothing more comes.
    Closed,
    /// Nothing is done any more.
    Abandoned,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let waiting = Waiting { people: VecDeque::new(), background: VecDeque::new(), life: Life::Open };
        Self { waiting: Mutex::new(waiting), came: Condvar::new() }
    }
}

impl<T> Queue<T> {
    /// Adds work; what comes behind the end is dropped.
    pub(crate) fn add(&self, class: Class, work: T) {
        let mut waiting = self.lock();
        match (waiting.life, class) {
            (Life::Closed | Life::Abandoned, _) => return,
            (Life::Open, Class::Reactive) => waiting.people.push_back(work),
            (Life::Open, Class::Proactive) => waiting.background.push_back(work),
        }
        self.came.notify_one();
    }

    /// What is to be done next, once there is something; nothing when all is done and nothing more comes.
    pub(crate) fn next(&self) -> Option<T> {
        let mut waiting = self.lock();
        loop {
            let next = waiting.people.pop_front().or_else(|| waiting.background.pop_front());
            if next.is_some() || waiting.life != Life::Open {
                return next;
            }
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing more comes: what waits is still done.
    pub(crate) fn close(&self) {
        self.end(Life::Closed);
    }

    /// Drops what waits when the result is dropped, and all that comes later.
    pub(crate) fn abandons(&self) -> Abandons<'_, T> {
        Abandons(self)
    }

    fn end(&self, life: Life) {
        let mut waiting = self.lock();
        if life == Life::Abandoned {
            waiting.people.clear();
            waiting.background.clear();
        }
        waiting.life = life;
        self.came.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Queue::abandons`].
pub(crate) struct Abandons<'a, T>(&'a Queue<T>);

impl<T> Drop for Abandons<'_, T> {
    fn drop(&mut self) {
        self.0.end(Life::Abandoned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_go_first_and_what_was_given_is_done_to_its_end() {
        let queue = Queue::default();
        for (class, work) in [(Class::Proactive, 1), (Class::Reactive, 2), (Class::Proactive, 3), (Class::Reactive, 4)]
        {
            queue.add(class, work);
        }
        queue.close();
        queue.add(Class::Reactive, 5);
        let done: Vec<i32> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(done, [2, 4, 1, 3]);
    }

    #[test]
    fn whoever_waits_for_work_is_woken() {
        let queue = Queue::default();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| (queue.next(), queue.next()));
            queue.add(Class::Proactive, 1);
            queue.close();
            assert_eq!(worker.join().unwrap(), (Some(1), None));
        });
    }

    #[test]
    fn work_that_nobody_does_is_dropped() {
        let queue = Queue::default();
        let work = std::sync::Arc::new(());
        queue.add(Class::Reactive, std::sync::Arc::clone(&work));
        drop(queue.abandons());
        queue.add(Class::Reactive, std::sync::Arc::clone(&work));
        assert_eq!((std::sync::Arc::strong_count(&work), queue.next()), (1, None));
    }
}
