//! The dual queues: for each stage a real-time queue of reactive requests and a best-effort queue of proactive ones.
//!
//! A request stands in exactly one of them, in the order of arrival, so that one that was preempted, spilled or
//! restarted finds its old place. Every operation is logarithmic: ten thousand waiting requests cost no more than a
//! few. (Agent.xpu §4.1: dual task queues)

use duet_types::Class;
use std::collections::BTreeSet;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// To begin, or to come back from disk.
    Queued,
    /// A prefill pass.
    Prefill,
    /// A decode pass.
    Decode,
    /// Nothing: it is in a pass, or on its way to memory or disk.
    Away,
}

/// All queues. They hold arrival numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    sets: [[BTreeSet<u64>; 2]; 4],
}

impl Line {
    pub(crate) const ALL: [Self; 4] = [Self::Queued, Self::Prefill, Self::Decode, Self::Away];
}

impl Queues {
    pub(crate) fn get(&self, line: Line, class: Class) -> &BTreeSet<u64> {
        &self.sets[line as usize][class as usize]
    }

    pub(crate) fn enter(&mut self, line: Line, class: Class, arrival: u64) {
        self.sets[line as usize][class as usize].insert(arrival);
    }

    pub(crate) fn leave(&mut self, line: Line, class: Class, arrival: u64) {
        self.sets[line as usize][class as usize].remove(&arrival);
    }
}
