//! What can be asked of a running engine.

use crate::kept::KvPlace;
use crate::request::FlowKey;
use duet_types::{Class, FlowId, Nanos, RequestId, Stage, TenantId, Tokens};

/// What an engine has to do, and with what memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that wait to begin.
    pub queued: usize,
    /// Requests that have begun.
    pub running: usize,
    /// Ended requests whose KV is kept for the turns that follow.
    pub flows_kept: usize,
    /// KV pages in use, kept ones included.
    pub kv_pages_used: usize,
    /// KV pages there are.
    pub kv_pages: usize,
    /// KV pages on disk, or on the way there.
    pub kv_pages_spilled: usize,
}

/// A flow that has requests or kept KV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowView {
    /// Its number.
    pub flow: FlowId,
    /// What its client calls it.
    pub key: Option<FlowKey>,
    /// Whose it is.
    pub tenant: TenantId,
    /// Its open requests, oldest first.
    pub requests: Vec<RequestView>,
    /// What its ended requests left.
    pub kept: Vec<KeptView>,
}

/// An open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestView {
    /// Its number.
    pub request: RequestId,
    /// Who waits for it.
    pub class: Class,
    /// What it is doing; absent: it has not begun.
    pub stage: Option<Stage>,
    /// Whether it waits, and no pass has rows of it.
    pub is_waiting: bool,
    /// Prompt tokens.
    pub prompt: Tokens,
    /// Positions whose keys and values are computed.
    pub computed: Tokens,
    /// Tokens generated.
    pub generated: Tokens,
    /// The next HEG node of its pass; 0 between passes.
    pub node: usize,
    /// Since it was submitted.
    pub age: Nanos,
}

/// KV that an ended request left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptView {
    /// How many tokens.
    pub tokens: Tokens,
    /// On how many pages.
    pub pages: usize,
    /// Whether it lies in memory or on disk.
    pub place: KvPlace,
}
