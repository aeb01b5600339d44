//! What came of a request, and how often its drafts were right.
//!
//! A simulated draft is a chain whose rows are right with the same chance each, if all before them are. The chance is that
//! under which what was seen is likeliest: of all rows that were reached, those that were right. A pass reached a row that
//! was wrong if it accepted fewer rows than it verified; and one that was not even drafted if it accepted all that there
//! were. One that accepted all rows that the scheduler took of a longer draft says nothing of the next.

use duet_scheduler::{Chance, Generated};
use duet_types::{Nanos, Tokens};

/// What came of a request so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Produced {
    /// Tokens of its answer.
    pub(super) tokens: Tokens,
    /// Rows of drafts that were right.
    accepted: u32,
    /// Rows that were reached and were not.
    missed: u32,
    /// Rows of a draft that its pass verifies.
    drafted: Tokens,
    /// Rows that there were to verify.
    offered: Tokens,
    /// How long its masks took to make in all, and in how many passes.
    masks: (Nanos, u64),
}

impl Produced {
    /// Its pass verifies so many rows.
    pub(super) fn verifies(&mut self, drafted: Tokens) {
        self.drafted = drafted;
    }

    /// A pass of it came to its end.
    pub(super) fn brought(&mut self, new: &Generated) {
        let accepted = new.tokens.saturating_sub(Tokens(1));
        // Its first token is its prompt's, which had no draft.
        if self.tokens > Tokens::ZERO && (accepted < self.drafted || self.drafted == self.offered) {
            self.missed += 1;
        }
        self.accepted += accepted.0;
        self.masks = (self.masks.0 + new.masks, self.masks.1 + 1);
        self.tokens += new.tokens;
        (self.drafted, self.offered) = (Tokens::ZERO, new.offer.len());
    }

    /// How long the masks of a pass took to make on average.
    pub(super) fn masks(self) -> Nanos {
        let (all, passes) = self.masks;
        Nanos(all.0 / passes.max(1))
    }

    /// The chance of each row of its drafts, if any was right.
    pub(super) fn drafts(self) -> Option<Chance> {
        let (accepted, missed) = (f64::from(self.accepted), f64::from(self.missed));
        (self.accepted > 0).then(|| Chance::new((accepted / (accepted + missed)) as f32))
    }
}
