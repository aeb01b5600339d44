//! The rules by name.

use duet_types::Instant;
use std::fmt;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// KV pages are conserved.
    Conservation,
    /// Nothing is emitted for a request that ended or was cancelled.
    Silence,
    /// Every request ends, once, and as it should.
    Endings,
    /// A reactive request's wait for its first kernel is bounded.
    ReactiveWait,
    /// The progress of overdue proactive requests is bounded from below.
    ProactiveProgress,
    /// No lane is idle while work that it may run waits.
    Idleness,
    /// Among equals the order of arrival is kept.
    Order,
    /// A device is given the layers that it holds, and no others.
    Holdings,
    /// Neither the scheduler nor the world panics.
    Soundness,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// When it was broken, in virtual time.
    pub at: Instant,
    /// What was seen that the rule forbids, in words.
    pub how: String,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conservation => "KV pages are conserved",
            Self::Silence => "nothing is emitted for a request that ended or was cancelled",
            Self::Endings => "every request ends once, and as it should",
            Self::ReactiveWait => "a reactive request waits no longer than its bound",
            Self::ProactiveProgress => "overdue proactive work has its share",
            Self::Idleness => "no lane is idle while work that it may run waits",
            Self::Order => "equals go in the order of arrival",
            Self::Holdings => "devices are given the layers that they hold",
            Self::Soundness => "neither scheduler nor world panics",
        })
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken at {:.3} ms: {}\n  {}", self.at.0 as f64 / 1e6, self.rule, self.how)
    }
}
