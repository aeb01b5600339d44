//! A broken rule as a person reads it: what, when, and the one command that shows it again.

use crate::checkers::Broken;
use crate::scenario::Scenario;
use std::fmt;

/// A seed whose scenario breaks a rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// The rule, and how the smallest scenario breaks it.
    pub broken: Broken,
    /// The smallest scenario that was found to break it.
    pub scenario: Box<Scenario>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.broken)?;
        writeln!(f, "The smallest scenario that breaks it:\n\n{}\n", self.scenario)?;
        write!(f, "Replay: cargo run --release -p duet-sim --example faults -- {}", self.seed)
    }
}

impl std::error::Error for Violation {}
