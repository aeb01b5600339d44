//! Devices that were given up, while they are taken down.
//!
//! To take down a device that hangs may take as long as it hangs, so a thread of its own does it. A process that returns from
//! `main` while a thread is inside a Vulkan driver ends by a signal now and then; so whoever drops the model waits for a
//! moment until those threads have ended.

use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// The threads that take them down.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl GivenUp {
    /// Drops `gone` on a thread of its own; here, if there is none to be had.
    pub(crate) fn take_down<T: Send + 'static>(&self, gone: T) {
        if let Ok(thread) = Builder::new().name("duet-gpu-gone".to_owned()).spawn(move || drop(gone)) {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.retain(|thread| !thread.is_finished());
            threads.push(thread);
        }
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // What it dropped may have panicked, which has been said.
                let _ = thread.join();
            }
        }
    }
}

/// A device that works is taken down within some milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    #[test]
    fn what_is_soon_taken_down_is_waited_for() {
        struct Slow(Arc<AtomicBool>);
        impl Drop for Slow {
            fn drop(&mut self) {
                sleep(Duration::from_millis(50));
                self.0.store(true, Ordering::Release);
            }
        }
        let is_down = Arc::new(AtomicBool::new(false));
        let given_up = GivenUp::default();
        given_up.take_down(Slow(Arc::clone(&is_down)));
        drop(given_up);
        assert!(is_down.load(Ordering::Acquire));
    }

    #[test]
    fn nobody_waits_for_what_hangs() {
        struct Hangs(mpsc::Receiver<()>);
        impl Drop for Hangs {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (let_go, hangs) = mpsc::channel();
        let given_up = GivenUp::default();
        given_up.take_down(Hangs(hangs));
        drop(given_up);
        let_go.send(()).expect("it still hangs");
    }
}
