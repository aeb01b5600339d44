//! What kept KV saved: prompt tokens that were put in place and not computed.

use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::{Instant, Tokens};

/// Counts while it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    tokens: Tokens,
}

impl Reuse {
    /// Tokens that requests found of others; their own that came back from disk are not among them.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }
}

impl Observer for Reuse {
    fn event(&mut self, _: Instant, event: &Event) {
        if let Event::Restored { cached, source: Some(_), .. } = event {
            self.tokens = Tokens(self.tokens.0.saturating_add(cached.0));
        }
    }

    fn command(&mut self, _: Instant, _: &Command) {}
}
