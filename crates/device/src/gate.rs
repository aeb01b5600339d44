//! The gate: whether a device takes jobs, and when its threads may go.
//!
//! A thread may be asked to help with any job that is under way on the device, so none may leave before the last job
//! has ended. Jobs launch their successors before they end, so work that began before the stop is carried through.

use crate::job::LanesStopped;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts jobs that are queued or run.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    open_jobs: usize,
    stopping: bool,
}

impl Gate {
    /// Lets a job in. While the device is stopping, only the jobs under way may launch more.
    pub(crate) fn enter(&self) -> Result<(), LanesStopped> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.stopping && state.open_jobs == 0 {
            return Err(LanesStopped);
        }
        state.open_jobs += 1;
        Ok(())
    }

    /// Lets a job out. Returns whether the gate closed with it: then all threads are to be woken.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.open_jobs -= 1;
        self.close_if_done(&state)
    }

    /// Takes no more jobs from outside. Returns whether the gate closed: then all threads are to be woken.
    pub(crate) fn stop(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopping = true;
        self.close_if_done(&state)
    }

    /// Whether threads may go: no job is under way, and none will be.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close_if_done(&self, state: &State) -> bool {
        let done = state.stopping && state.open_jobs == 0;
        if done {
            self.closed.store(true, Ordering::Release);
        }
        done
    }
}
