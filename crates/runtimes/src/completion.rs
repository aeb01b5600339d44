//! Word from a device that an inference has ended, and waiting for it.

use duet_types::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is to happen when an inference has ended, on the device's thread.
pub type Then = Box<dyn FnOnce() + Send>;

/// Told once for each inference, by the device; waited for by whoever wants its result.
#[derive(Default)]
pub struct Completion {
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Default)]
struct State {
    is_told: bool,
    then: Option<Then>,
}

impl Completion {
    /// Forgets the inference before, and notes what is to happen after this one.
    pub fn begin(&self, then: Option<Then>) {
        *self.state() = State { is_told: false, then };
    }

    /// The inference has ended, well or badly. A panic of what follows ends here: the caller is foreign code.
    pub fn tell(&self) {
        let then = {
            let mut state = self.state();
            state.is_told = true;
            state.then.take()
        };
        self.told.notify_all();
        if let Some(then) = then {
            // The panic hook has said what happened.
            let _ = catch_unwind(AssertUnwindSafe(then));
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.state().is_told
    }

    /// Returns when it has ended.
    pub fn wait(&self) {
        let guard = self.told.wait_while(self.state(), |state| !state.is_told);
        drop(guard.unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns when it has ended or `limit` is over; whether it has ended.
    #[must_use]
    pub fn wait_for(&self, limit: Nanos) -> bool {
        let limit = Duration::from_nanos(limit.0);
        let waited = self.told.wait_timeout_while(self.state(), limit, |state| !state.is_told);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_told
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Completion({})", if self.is_told() { "told" } else { "awaited" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn what_follows_happens_once_and_after_the_word() {
        let completion = Arc::new(Completion::default());
        let (sender, receiver) = channel();
        let seen = Arc::clone(&completion);
        completion.begin(Some(Box::new(move || sender.send(seen.is_told()).unwrap())));
        assert!(!completion.wait_for(Nanos(1)));
        completion.tell();
        completion.tell();
        assert!(completion.wait_for(Nanos(1)));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn a_panic_does_not_reach_the_device() {
        let completion = Completion::default();
        completion.begin(Some(Box::new(|| panic!("of what follows"))));
        completion.tell();
        completion.wait();
    }

    #[test]
    fn another_inference_is_awaited_anew() {
        let completion = Completion::default();
        completion.tell();
        completion.begin(None);
        assert!(!completion.is_told());
    }
}
