//! What came of drafts.

use duet_types::{Bytes, Tokens};
use std::time::Duration;

/// What came of a generation's drafts, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Drafted tokens that were right.
    pub accepted: Tokens,
    /// Drafted tokens that were computed for nothing.
    pub rejected: Tokens,
    /// Time that drafting and learning took, between two passes.
    pub drafting: Duration,
    /// Time that calibration from the prompt took.
    pub calibration: Duration,
    /// Its share of the time that a draft model took, between two passes.
    pub by_model: Duration,
    /// Memory that the drafters hold.
    pub memory: Bytes,
}
