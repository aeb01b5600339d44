//! KV pages are conserved.
//!
//! Asserted when an event has settled, of the pages that are in use in truth and of the scheduler's books:
//! - in truth, `used <= capacity` in memory and on disk;
//! - the books never believe in more room than there is: `used in truth <= used in the books`, on disk likewise;
//! - the books exceed capacity by no more than kept KV that is being taken over, which they count twice:
//!   `used <= capacity + kept`, and `kept <= used`;
//! - a request holds KV exactly while it is live and begun: none is lost, and none stays behind;
//! - when no request is live and nothing is being written, both say the same: all that is used is kept.
//!
//! (Agent.xpu §4.1: memory manager)

use super::picture::{Picture, Standing};
use super::{Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::{MemoryLimits, Pages};
use duet_types::Instant;

/// How memory stands: in truth, and in the scheduler's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// Pages in memory that KV is in, or that a pass under way will write.
    pub used: usize,
    /// Pages on disk, or on the way there.
    pub on_disk: usize,
    /// Live requests that hold KV, in memory or on disk.
    pub live: usize,
    /// What the scheduler thinks.
    pub ledger: Pages,
}

#[derive(Debug)]
pub(super) struct Conservation {
    limits: MemoryLimits,
}

impl Conservation {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { limits: scenario.config.memory }
    }

    fn check(&self, books: &Books, begun: usize, quiet: Quiet) -> Option<String> {
        let Books { used, on_disk, live, ledger } = *books;
        let MemoryLimits { pages, disk_pages, .. } = self.limits;
        let claims = [
            (used <= pages, "more pages are used than there are"),
            (on_disk <= disk_pages, "more pages are on disk than it takes"),
            (used <= ledger.used, "more pages are used than the scheduler knows"),
            (on_disk <= ledger.on_disk, "more pages are on disk than the scheduler knows"),
            (ledger.kept <= ledger.used, "more is kept than is used"),
            (ledger.used <= pages.saturating_add(ledger.kept), "the scheduler gave more than there is"),
            (live == begun, "a request that has not begun, or has ended, holds KV, or one that has begun holds none"),
            (quiet == Quiet::No || ledger.used == ledger.kept, "pages belong to nobody"),
            (quiet == Quiet::No || ledger.used == used, "what is kept is not what the scheduler thinks"),
            (quiet == Quiet::No || ledger.on_disk == on_disk, "what is on disk is not what the scheduler thinks"),
        ];
        claims.into_iter().find(|(holds, _)| !holds).map(|(_, how)| format!("{how}: {books:?}, {begun} have begun"))
    }
}

/// Whether nothing is live or on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quiet {
    Yes,
    No,
}

impl Checker for Conservation {
    fn rule(&self) -> Rule {
        Rule::Conservation
    }

    fn settled(&mut self, picture: &Picture, _: Instant, books: &Books) -> Result<(), String> {
        let begun = picture.live().filter(|(_, seen)| seen.standing != Standing::Queued).count();
        let is_quiet = picture.live().next().is_none() && picture.writing.is_empty();
        let quiet = if is_quiet { Quiet::Yes } else { Quiet::No };
        self.check(books, begun, quiet).map_or(Ok(()), Err)
    }
}
