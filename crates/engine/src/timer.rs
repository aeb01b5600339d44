//! The engine's alarm clock: one thread that sleeps until the earliest time that the scheduler asked for.

use crate::clock::Clock;
use duet_types::Instant;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The clock, as the world holds it. Dropping it ends the thread.
pub(crate) struct Timer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    times: BTreeSet<Instant>,
    life: Life,
}

#[derive(Default, PartialEq, Eq)]
enum Life {
    #[default]
    Running,
    Stopped,
}

impl Timer {
    /// Starts the thread. `ring` is called on it whenever a time has come.
    pub(crate) fn start(clock: Clock, ring: impl Fn() + Send + 'static) -> io::Result<(Self, JoinHandle<()>)> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("duet-timer".to_owned()).spawn(move || of_thread.work(clock, ring))?;
        Ok((Self { shared }, thread))
    }

    /// Rings at `at`, or soon if that has passed.
    pub(crate) fn set(&self, at: Instant) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_earliest = state.times.first().is_none_or(|first| at < *first);
        state.times.insert(at);
        if is_earliest {
            self.shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn work(&self, clock: Clock, ring: impl Fn()) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.life == Life::Running {
            let now = clock.now();
            match state.times.first().copied() {
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(first) if first > now => {
                    let wait = Duration::from_nanos((first - now).0);
                    state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(first) => {
                    state.times.remove(&first);
                    // The ring takes the engine's lock, whose holder may be setting a time.
                    drop(state);
                    ring();
                    state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).life = Life::Stopped;
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::Nanos;
    use std::sync::mpsc::channel;

    #[test]
    fn it_rings_in_the_order_of_times_and_ends_when_it_is_dropped() {
        let clock = Clock::start();
        let (send, rung) = channel();
        let (timer, thread) = Timer::start(clock, move || send.send(clock.now()).unwrap()).unwrap();
        let start = clock.now();
        let times = [30, 10, 20].map(|millis| start + Nanos(millis * 1_000_000));
        times.iter().for_each(|&at| timer.set(at));
        let rings: Vec<Instant> = (0..3).map(|_| rung.recv().unwrap()).collect();
        assert!(rings[0] >= times[1] && rings[1] >= times[2] && rings[2] >= times[0], "{rings:?}");
        drop(timer);
        thread.join().unwrap();
    }
}
