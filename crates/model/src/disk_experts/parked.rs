//! Passes that gave their lanes back while their experts are read, and whom to tell when these are there.
//!
//! Somebody is told once, without a lock that others need: whoever is told goes on at once.

use duet_moe::Place;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Called when what a pass waits for is there, or is lost.
pub type Tell = Box<dyn FnOnce() + Send>;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Parked {
    next: u64,
    waiting: BTreeMap<Ticket, Waiting>,
}

struct Waiting {
    since: Instant,
    coming: Vec<Place>,
    /// How many of these have to come first.
    needed: usize,
    tell: Option<Tell>,
}

impl Parked {
    /// A pass waits for some of these.
    pub(super) fn park(&mut self, coming: Vec<Place>, needed: usize) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.insert(ticket, Waiting { since: Instant::now(), coming, needed, tell: None });
        ticket
    }

    /// Whom to tell; who is to be told at once is returned.
    pub(super) fn when_ready(&mut self, ticket: Ticket, tell: Tell) -> Option<Tell> {
        match self.waiting.get_mut(&ticket).filter(|waiting| waiting.needed > 0) {
            Some(waiting) => {
                waiting.tell = Some(tell);
                None
            }
            None => Some(tell),
        }
    }

    /// It does not wait any more.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// An expert has come. Who is to be told now, and how long those who have what they need have waited.
    pub(super) fn came(&mut self, place: Place) -> (Vec<Tell>, Duration) {
        self.note(place, |needed| needed - 1)
    }

    /// It will not come: nobody waits for more, so that they hear of it.
    pub(super) fn lost(&mut self, place: Place) -> (Vec<Tell>, Duration) {
        self.note(place, |_| 0)
    }

    fn note(&mut self, place: Place, left: impl Fn(usize) -> usize) -> (Vec<Tell>, Duration) {
        let (mut tells, mut waited) = (Vec::new(), Duration::ZERO);
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.needed > 0) {
            let Some(at) = waiting.coming.iter().position(|other| *other == place) else { continue };
            waiting.coming.swap_remove(at);
            waiting.needed = left(waiting.needed);
            if waiting.needed == 0 {
                waited += waiting.since.elapsed();
                tells.extend(waiting.tell.take());
            }
        }
        (tells, waited)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.needed, self.coming)
    }
}
