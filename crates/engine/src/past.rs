//! The past: what is still under way of requests whose scheduler failed.
//!
//! When the scheduler fails every open request is told, and a new scheduler begins with nothing. But kernels may be on
//! lanes, tables on their way to or from disk, and graphs on their way to a device. What comes of them concerns nobody, so
//! it is dropped; and until all of it has come nothing new is begun, since it holds KV pages and graphs that the new
//! scheduler takes for free.
//!
//! Invariant: requests are numbered on, so that a number says whether something is of the past. Kernels, passes and graphs
//! are numbered anew, and never asked for their own numbers.

use duet_types::RequestId;
use std::sync::{Arc, Weak};

/// What is still to come of failed schedulers, and what was asked since.
#[derive(Debug)]
pub(crate) struct Past {
    /// The first request of the present.
    first: RequestId,
    present: Arc<OnLanes>,
    /// Kernels of the past hold these.
    kernels: Vec<Weak<OnLanes>>,
    moves: Owed,
    loads: Owed,
}

/// A kernel holds it from its launch until all that it had is given back.
#[derive(Debug, Default)]
pub(crate) struct OnLanes;

/// Of what an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Past,
    Present,
}

/// Answers of a thread that answers in the order in which it was asked.
#[derive(Debug, Default)]
struct Owed {
    past: usize,
    present: usize,
}

impl Past {
    /// Nothing has failed.
    pub(crate) fn new() -> Self {
        Self {
            first: RequestId(0),
            present: Arc::default(),
            kernels: Vec::new(),
            moves: Owed::default(),
            loads: Owed::default(),
        }
    }

    /// When this request was submitted.
    pub(crate) fn of(&self, request: RequestId) -> When {
        if request < self.first { When::Past } else { When::Present }
    }

    /// For a kernel that is launched now.
    pub(crate) fn on_lanes(&self) -> Arc<OnLanes> {
        Arc::clone(&self.present)
    }

    /// Whether what holds this was launched since the last failure.
    pub(crate) fn is_present(&self, of: &Arc<OnLanes>) -> bool {
        Arc::ptr_eq(&self.present, of)
    }

    /// A table was given to the thread that moves tables.
    pub(crate) fn moves(&mut self) {
        self.moves.present += 1;
    }

    /// It has answered.
    pub(crate) fn moved(&mut self) -> When {
        self.moves.answered()
    }

    /// A graph was asked for of the thread that loads graphs.
    pub(crate) fn loads(&mut self) {
        self.loads.present += 1;
    }

    /// A graph was asked for that the new scheduler takes for loaded.
    pub(crate) fn loads_first(&mut self) {
        self.loads.past += 1;
    }

    /// It has answered.
    pub(crate) fn loaded(&mut self) -> When {
        self.loads.answered()
    }

    /// All that is under way becomes the past; the next request will have this number.
    pub(crate) fn begin(&mut self, next: RequestId) {
        self.first = next;
        let before = std::mem::take(&mut self.present);
        self.kernels.push(Arc::downgrade(&before));
        self.moves.end();
        self.loads.end();
    }

    /// Whether nothing of the past is still to come.
    pub(crate) fn is_over(&mut self) -> bool {
        self.kernels.retain(|kernels| kernels.strong_count() > 0);
        self.kernels.is_empty() && self.moves.past == 0 && self.loads.past == 0
    }
}

impl Owed {
    fn answered(&mut self) -> When {
        if self.past > 0 {
            self.past -= 1;
            return When::Past;
        }
        self.present = self.present.saturating_sub(1);
        When::Present
    }

    fn end(&mut self) {
        self.past += std::mem::take(&mut self.present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_when_all_of_it_has_come() {
        let mut past = Past::new();
        assert!(past.is_over());
        let kernel = past.on_lanes();
        past.moves();
        past.loads();
        past.begin(RequestId(7));
        past.moves();
        assert_eq!([6, 7].map(|request| past.of(RequestId(request))), [When::Past, When::Present]);
        drop(kernel);
        assert_eq!(past.moved(), When::Past);
        assert!(!past.is_over(), "a graph is still to come");
        assert_eq!(past.loaded(), When::Past);
        assert!(past.is_over(), "what was asked since is not of the past");
        assert_eq!(past.moved(), When::Present);
    }

    #[test]
    fn a_kernel_of_the_one_before_the_last_is_waited_for() {
        let mut past = Past::new();
        let first = past.on_lanes();
        past.begin(RequestId(1));
        past.begin(RequestId(2));
        assert!(!past.is_over());
        drop(first);
        assert!(past.is_over());
    }
}
