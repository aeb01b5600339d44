//! The fused blocks of a model, a file each. They are the token-wise kernels that `duet_kernels::fused` has for the CPU
//! (Agent.xpu §4.2): what mixes rows, attention and the cache, is no part of any.

mod experts;
mod feed_forward;
mod head;
mod projection;
mod qkv;

pub use feed_forward::{FeedForward, GatedFeed};

/// What the blocks' inputs and outputs are called.
pub mod port {
    /// In: the residual stream, `[rows, hidden]`.
    pub const RESIDUAL: &str = "residual";
    /// In: what attention's heads came to, `[rows, queries]`.
    pub const ATTENDED: &str = "attended";
    /// Out: queries, keys and values of each row, before rope.
    pub const QKV: &str = "qkv";
    /// Out: the residual stream after the block.
    pub const NEXT: &str = "next";
    /// Out: one number for each token of the vocabulary.
    pub const LOGITS: &str = "logits";

    /// In: the rows that go to expert `index` of the group, `[rows, hidden]`.
    #[must_use]
    pub fn expert_rows(index: usize) -> String {
        format!("rows.{index}")
    }

    /// Out: what expert `index` of the group makes of its rows, not yet weighted.
    #[must_use]
    pub fn expert_result(index: usize) -> String {
        format!("result.{index}")
    }
}
