//! The watchdog: waiting for a device that may never answer, without giving back what it still uses.
//!
//! What an inference uses is owned by its [`Watched`]. It comes back when the device has said that it is done. Where
//! that is not waited for, because time is up or the handle is dropped, it goes to a thread that waits in the caller's
//! place, for ever if need be: a device that hangs costs its buffers, and neither a blocked caller nor memory that is
//! written after it was freed.

use crate::completion::Completion;
use crate::error::Error;
use duet_types::Nanos;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Work that a device does, with all that it uses.
pub trait UnderWay: Send + 'static {
    /// What comes of it.
    type Outcome;

    /// Asks the device to stop early; it may ignore that.
    fn cancel(&mut self);

    /// What has come of it. Called only after the device has said that it is done.
    ///
    /// # Errors
    /// If the device failed.
    fn finish(self) -> Result<Self::Outcome, Error>;
}

/// Work that is under way, and the device's word that it is done.
#[derive(Debug)]
pub struct Watched<W: UnderWay> {
    /// Absent once it was taken by `finish`.
    work: Option<W>,
    completion: Arc<Completion>,
}

impl<W: UnderWay> Watched<W> {
    /// Watches over `work`, of which `completion` will be told, or was.
    pub fn new(work: W, completion: Arc<Completion>) -> Self {
        Self { work: Some(work), completion }
    }

    /// Whether the device is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.completion.is_told()
    }

    /// Waits until the device is done, however long that takes.
    ///
    /// # Errors
    /// If the device failed.
    pub fn wait(mut self) -> Result<W::Outcome, Error> {
        self.completion.wait();
        self.take().finish()
    }

    /// Waits until the device is done, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::Hung`] if it is not done then; what it uses is given back when it is.
    pub fn wait_for(mut self, limit: Nanos) -> Result<W::Outcome, Error> {
        if !self.completion.wait_for(limit) {
            return Err(Error::Hung { limit });
        }
        self.take().finish()
    }

    fn take(&mut self) -> W {
        self.work.take().expect("work is taken once, by a call that consumes its owner")
    }
}

impl<W: UnderWay> Drop for Watched<W> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if self.completion.is_told() {
            // Nobody wants to know what came of it.
            let _ = work.finish();
            return;
        }
        // If there is no thread to be had, the closure is dropped and the work leaks, which is safe.
        let mut work = ManuallyDrop::new(work);
        let completion = Arc::clone(&self.completion);
        let wait = move || {
            work.cancel();
            completion.wait();
            let _ = ManuallyDrop::into_inner(work).finish();
        };
        let _ = std::thread::Builder::new().name("duet-abandoned".to_owned()).spawn(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    /// Says when it was told to stop and when what it uses was given back.
    struct Work {
        log: Sender<&'static str>,
    }

    impl UnderWay for Work {
        type Outcome = u32;

        fn cancel(&mut self) {
            self.log.send("cancelled").unwrap();
        }

        fn finish(self) -> Result<u32, Error> {
            Ok(7)
        }
    }

    impl Drop for Work {
        fn drop(&mut self) {
            // The test may be over.
            let _ = self.log.send("given back");
        }
    }

    #[test]
    fn work_that_ends_in_time_is_handed_over() {
        let (log, _events) = channel();
        let completion = Arc::new(Completion::default());
        let teller = Arc::clone(&completion);
        let device = std::thread::spawn(move || teller.tell());
        let watched = Watched::new(Work { log }, completion);
        assert_eq!(watched.wait_for(Nanos(60_000_000_000)).unwrap(), 7);
        device.join().unwrap();
    }

    #[test]
    fn a_device_that_hangs_is_left_and_keeps_what_it_uses_until_it_answers() {
        let (log, events) = channel();
        let completion = Arc::new(Completion::default());
        let start = Instant::now();
        let error = Watched::new(Work { log }, Arc::clone(&completion)).wait_for(Nanos(5_000_000)).unwrap_err();
        assert!(matches!(error, Error::Hung { limit: Nanos(5_000_000) }), "{error}");
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert_eq!(events.recv(), Ok("cancelled"));
        // The only other word would be that memory is given back that the device still uses.
        assert!(events.recv_timeout(Duration::from_millis(20)).is_err());
        completion.tell();
        assert_eq!(events.recv(), Ok("given back"));
    }

    #[test]
    fn work_that_is_dropped_blocks_nobody() {
        let (log, events) = channel();
        let completion = Arc::new(Completion::default());
        drop(Watched::new(Work { log }, Arc::clone(&completion)));
        assert_eq!(events.recv(), Ok("cancelled"));
        completion.tell();
        assert_eq!(events.recv(), Ok("given back"));
    }
}
