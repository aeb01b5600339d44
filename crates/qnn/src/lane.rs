//! The thread that a device's inferences run on, one after the other, as the HTP runs them itself.
//!
//! ONNX Runtime returns when an inference has ended and takes no time limit, so nobody who gave one may call it. Work owns
//! all that it uses: where it is not waited for any more, it keeps that until it ends. A thread that hangs is left
//! behind, and the next inference has a new one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

/// Something to be done, with all that it needs.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that works through what it is given. It is started when there is work, and ends with its lane.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    jobs: Mutex<Option<Sender<Job>>>,
}

impl Lane {
    /// Has `job` done after those before it.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match jobs.take() {
            Some(sender) => sender,
            None => start()?,
        };
        // The thread takes jobs as long as somebody can send them.
        let _ = sender.send(Box::new(job));
        *jobs = Some(sender);
        Ok(())
    }

    /// Leaves the thread with what it has: it hangs.
    pub(crate) fn leave(&self) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A thread that ends when nobody can send it jobs any more. A panic ends its job alone: what that owned is dropped.
fn start() -> std::io::Result<Sender<Job>> {
    let (sender, receiver) = channel::<Job>();
    let work = move || {
        for job in receiver {
            // The panic hook has said what happened, and whoever waits finds nobody to wait for.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    };
    std::thread::Builder::new().name("duet-htp".to_owned()).spawn(work)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current};

    fn thread_of(lane: &Lane) -> ThreadId {
        let (sender, receiver) = channel();
        lane.run(move || sender.send(current().id()).unwrap()).unwrap();
        receiver.recv().unwrap()
    }

    #[test]
    fn work_is_done_in_order_on_one_thread() {
        let lane = Lane::default();
        let (sender, receiver) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            lane.run(move || sender.send(number).unwrap()).unwrap();
        }
        drop(sender);
        assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        assert_eq!(thread_of(&lane), thread_of(&lane));
    }

    #[test]
    fn a_thread_that_hangs_is_left_and_its_work_ends_all_the_same() {
        let lane = Lane::default();
        let (release, hang) = channel::<()>();
        let (sender, ended) = channel();
        lane.run(move || {
            let _ = hang.recv();
            sender.send(current().id()).unwrap();
        })
        .unwrap();
        lane.leave();
        let next = thread_of(&lane);
        release.send(()).unwrap();
        assert_ne!(ended.recv().unwrap(), next);
    }

    #[test]
    fn a_panic_ends_its_job_and_no_other() {
        let lane = Lane::default();
        let (sender, receiver) = channel::<()>();
        lane.run(move || {
            let _sender = sender;
            panic!("of a job");
        })
        .unwrap();
        assert!(receiver.recv().is_err());
        thread_of(&lane);
    }
}
