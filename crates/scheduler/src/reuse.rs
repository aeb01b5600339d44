//! Predicted reuse: which kept KV is worth its memory.
//!
//! What a request left is of use again if its flow goes on. How likely that is shows in what happened before: a
//! conversation that was continued will be continued; a request that begins like one which nobody continued (a title, a
//! tag, a classification: the same instructions, another text) will not be either. So a title never evicts a chat,
//! however recent it is. Among equals the least recently used goes first.

use duet_types::{Class, Instant, Nanos, RequestId};

/// What is known of the use of kept KV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) lineage: Lineage,
    pub(crate) class: Class,
    pub(crate) last: Instant,
}

/// What the past says of a flow's future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lineage {
    /// It begins like a request that nobody continued.
    OneOff,
    /// Nothing is known.
    New,
    /// It continues another request.
    Continued,
    /// A request that waits will continue it.
    Awaited,
}

/// Kept KV is given up in this order: least worth first.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Worth(f64, u64);

impl Use {
    /// How much it is worth to keep at `now`; `request` breaks ties in favour of what came later.
    pub(crate) fn worth(&self, now: Instant, request: RequestId) -> Worth {
        let odds = match self.lineage {
            Lineage::OneOff => 0.02,
            Lineage::New => 0.25,
            Lineage::Continued => 1.0,
            Lineage::Awaited => return Worth(f64::INFINITY, request.0),
        };
        // A person's next turn comes more surely than an agent's next look.
        let class = match self.class {
            Class::Reactive => 1.0,
            Class::Proactive => 0.5,
        };
        let idle = Nanos((now - self.last).0);
        Worth(odds * class / (1.0 + idle.as_secs_f64() / HALF_LIFE.as_secs_f64()), request.0)
    }
}

/// After this time without use it is worth half: turns of a conversation are minutes apart.
const HALF_LIFE: Nanos = Nanos(300_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(lineage: Lineage, class: Class, last: u64) -> Worth {
        let last = Instant(last * 1_000_000_000);
        Use { lineage, class, last }.worth(Instant(1_000_000_000_000), RequestId(0))
    }

    #[test]
    fn a_conversation_outlives_every_one_off() {
        let old_chat = worth(Lineage::Continued, Class::Reactive, 0);
        assert!(old_chat > worth(Lineage::OneOff, Class::Reactive, 1000));
        assert!(old_chat < worth(Lineage::Awaited, Class::Proactive, 0));
    }

    #[test]
    fn among_equals_the_least_recently_used_goes_first() {
        assert!(worth(Lineage::New, Class::Reactive, 10) < worth(Lineage::New, Class::Reactive, 20));
        assert!(worth(Lineage::New, Class::Proactive, 20) < worth(Lineage::New, Class::Reactive, 20));
    }
}
