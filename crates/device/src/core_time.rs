//! What a lane's threads got of their cores.
//!
//! Linux counts for every thread how long it ran, and how long it could have run and did not, because other threads had
//! its core. Elsewhere nothing is known. A thread that spins runs; one that is parked does neither.

use duet_types::Nanos;
use std::path::PathBuf;

/// What a thread got of its core since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTime {
    /// It ran.
    pub ran: Nanos,
    /// It could have run, and others did.
    pub waited: Nanos,
}

/// Where the calling thread's time is told, if anywhere.
pub(crate) fn told_in() -> Option<PathBuf> {
    // `/proc/thread-self` is a link to `PROCESS/task/THREAD`.
    let thread = std::fs::read_link("/proc/thread-self").ok()?;
    Some(PathBuf::from("/proc").join(thread).join("schedstat"))
}

impl CoreTime {
    /// Reads what is told in a file: nanoseconds run and waited. Takes some microseconds.
    pub(crate) fn read(path: &PathBuf) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

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
        let path = told_in().unwrap();
        let before = CoreTime::read(&path).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let after = CoreTime::read(&path).unwrap();
        assert!(after.ran > before.ran, "{before:?} {after:?}");
    }
}
