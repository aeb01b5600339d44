//! What the scheduler is told of the machine and the model.

use duet_types::{LaneSet, Tokens};

/// The shape of the machine and of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// The lanes there are.
    pub lanes: LaneSet,
    /// HEG nodes that a pass goes through.
    pub nodes: usize,
    /// Most prompt tokens in one prefill pass (`S_chk`).
    pub chunk: Tokens,
    /// Most HEG nodes in one kernel; absent: a pass is one kernel.
    pub span_nodes: Option<usize>,
}

impl SchedulerConfig {
    /// Tokens in a chunk: enough rows to reach the machine's peak arithmetic, few enough that a cancelled prompt stops
    /// and activations stay in cache.
    pub const CHUNK_DEFAULT: Tokens = Tokens(256);

    /// Whole passes of default chunks.
    #[must_use]
    pub fn new(lanes: LaneSet, nodes: usize) -> Self {
        Self { lanes, nodes, chunk: Self::CHUNK_DEFAULT, span_nodes: None }
    }
}
