//! What a lane's threads got of their cores.
//!
//! Linux counts for every thread how long it ran, and how long it could have run and did not, because other threads had
//! its core. Elsewhere nothing is known. A thread that spins runs; one that is parked does neither.

use duet_types::Nanos;

/// What a thread got of its core since it began, or from one look to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTime {
    /// It ran.
    pub ran: Nanos,
    /// It could have run, and others did.
    pub waited: Nanos,
}

/// Where a thread's time is told. It stays open: reading takes a microsecond, opening ten.
#[derive(Debug)]
#[cfg(unix)]
pub(crate) struct Told(std::fs::File);

#[cfg(unix)]
impl Told {
    /// Of the calling thread, if anybody tells.
    pub(crate) fn of_this_thread() -> Option<Self> {
        // A link to `PROCESS/task/THREAD`: the file stays this thread's, whoever reads it.
        std::fs::File::open("/proc/thread-self/schedstat").ok().map(Self)
    }

    /// What this file says of a thread.
    #[cfg(test)]
    pub(crate) fn by(file: std::fs::File) -> Self {
        Self(file)
    }

    /// What the thread has got by now.
    pub(crate) fn read(&self) -> Option<CoreTime> {
        let mut text = [0; 64];
        let len = std::os::unix::fs::FileExt::read_at(&self.0, &mut text, 0).ok()?;
        CoreTime::parse(str::from_utf8(&text[..len]).ok()?)
    }
}

/// Nobody tells.
#[derive(Debug)]
#[cfg(not(unix))]
pub(crate) enum Told {}

#[cfg(not(unix))]
impl Told {
    pub(crate) fn of_this_thread() -> Option<Self> {
        None
    }

    pub(crate) fn read(&self) -> Option<CoreTime> {
        match *self {}
    }
}

impl CoreTime {
    /// What it got since it had got `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { ran: self.ran.saturating_sub(before.ran), waited: self.waited.saturating_sub(before.waited) }
    }

    /// Of nanoseconds run and waited, and whatever follows.
    #[cfg(any(unix, test))]
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok().map(Nanos));
        Some(Self { ran: numbers.next()?, waited: numbers.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_and_wait_come_first() {
        let expected = CoreTime { ran: Nanos(3_558_391), waited: Nanos(12) };
        assert_eq!(CoreTime::parse("3558391 12 1\n"), Some(expected));
        assert_eq!(CoreTime::parse("3558391\n"), None);
        assert_eq!(CoreTime::parse("x y\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_runs_is_seen_to() {
        let told = Told::of_this_thread().unwrap();
        let before = told.read().unwrap();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let after = told.read().unwrap();
        assert!(after.since(before).ran > Nanos(0), "{before:?} {after:?}");
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| told.read()).join().unwrap()).unwrap();
        assert!(elsewhere.ran >= after.ran, "another thread reads of this one");
    }

    /// Others have its core as well, so it waits, and the longer the more others there are.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_waits_is_seen_to() {
        use std::sync::atomic::{AtomicBool, Ordering};
        /// Set however the thread ends: the other one waits for it.
        struct Ended<'a>(&'a AtomicBool);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let core = crate::affinity::available_cores()[0].id;
        let (has_begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let wait = || {
            let _ended = Ended(&ended);
            crate::affinity::keep_on(core);
            let told = Told::of_this_thread().unwrap();
            while !has_begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let (before, start) = (told.read().unwrap(), std::time::Instant::now());
            // Some thousand times what it takes.
            while told.read().unwrap().since(before).waited == Nanos(0) && start.elapsed().as_secs() < 60 {
                std::hint::spin_loop();
            }
            told.read().unwrap().since(before).waited
        };
        let waited = std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::affinity::keep_on(core);
                has_begun.store(true, Ordering::Release);
                while !ended.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(wait).join().unwrap()
        });
        assert!(waited > Nanos(0));
    }
}
