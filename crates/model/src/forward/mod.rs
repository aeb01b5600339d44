//! The forward pass, cut at HEG nodes.
//!
//! A [`Pass`] carries the rows of one or several sequences through the layers. It owns all state between nodes
//! (activations, KV tables), so it may stop after any node and go on later, on any crew. A row's result is
//! bit-identical whatever other rows share the pass, however the rows were chunked and whatever the crew's size.

use crate::kv::{KvError, KvPool, KvTable};
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_types::{TokenId, Tokens};
use std::ops::Range;

/// One node of the heterogeneous execution graph: what can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Token embeddings into the residual stream.
    Embed,
    /// Norm, QKV projection, rope, and the keys and values written to the cache. Token-wise.
    Qkv {
        /// From 0.
        layer: usize,
    },
    /// Attention over each row's own context. Sequence-wise.
    Attention {
        /// From 0.
        layer: usize,
    },
    /// Output projection, norm and feed-forward, added to the residual stream. Token-wise.
    Ffn {
        /// From 0.
        layer: usize,
    },
}

/// One sequence's rows in a pass.
#[derive(Debug)]
pub struct Segment {
    /// The sequence's cache; the rows follow its last position.
    pub kv: KvTable,
    /// The rows' tokens.
    pub tokens: Vec<TokenId>,
    /// For a draft tree: the parent row of each row within the segment (`None` = the cached context).
    /// Absent: each row follows the one before.
    pub parents: Option<Vec<Option<usize>>>,
}

/// The buffers of a pass; reused from pass to pass.
#[derive(Debug)]
pub struct Activations {}

/// Why a pass could not start.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// More rows than the buffers hold.
    #[error("{rows} rows exceed the activation buffer of {capacity}")]
    Rows {
        /// Rows asked for.
        rows: usize,
        /// Rows the buffer holds.
        capacity: usize,
    },
    /// A sequence would outgrow the model's context.
    #[error("position {position} is beyond the context of {context}")]
    Context {
        /// The position.
        position: usize,
        /// The context length.
        context: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {0} is not in the vocabulary")]
    Token(TokenId),
    /// A parent that is not an earlier row.
    #[error("row {row} of a draft tree names a parent that is not an earlier row")]
    Parent {
        /// The row.
        row: usize,
    },
    /// No pages left.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// A failed [`Pass::new`]: the buffers and tables come back untouched.
#[derive(Debug)]
pub struct PassRefused {
    /// Why.
    pub error: PassError,
    /// The buffers.
    pub activations: Activations,
    /// The segments as given.
    pub segments: Vec<Segment>,
}

/// Rows on their way through the layers.
#[derive(Debug)]
pub struct Pass {}

impl Activations {
    /// Buffers for up to `rows` rows of `model`.
    #[must_use]
    pub fn new(model: &Model, rows: usize) -> Self {
        let _ = (model, rows);
        todo!()
    }
}

impl Pass {
    /// Checks the segments and reserves their KV.
    ///
    /// # Errors
    /// [`PassRefused`]; nothing is lost.
    pub fn new(model: &Model, activations: Activations, segments: Vec<Segment>) -> Result<Self, Box<PassRefused>> {
        let _ = (model, activations, segments);
        todo!()
    }

    /// Rows of all segments together.
    #[must_use]
    pub fn rows(&self) -> usize {
        todo!()
    }

    /// Ends the pass after the last node: each table has grown by its rows (for a tree: by none; see `kv`).
    #[must_use]
    pub fn finish(self) -> (Activations, Vec<KvTable>) {
        todo!()
    }

    /// Gives the pass up at any point: the tables are as they were before it.
    #[must_use]
    pub fn abandon(self) -> (Activations, Vec<KvTable>) {
        todo!()
    }
}

impl Model {
    /// All nodes of a pass, in order.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        todo!()
    }

    /// Runs one node on `rows` of the pass. Nodes of a row must be run in order.
    pub fn run_node(&self, pass: &mut Pass, node: Node, rows: Range<usize>, crew: &dyn Crew) {
        let _ = (pass, node, rows, crew);
        todo!()
    }

    /// Runs a span of nodes (indices into [`Self::nodes`]) on all rows.
    pub fn run_span(&self, pass: &mut Pass, nodes: Range<usize>, crew: &dyn Crew) {
        let _ = (pass, nodes, crew);
        todo!()
    }

    /// Logits of the chosen rows (indices into the pass), after all nodes: `out[i * vocabulary..]` is row `rows[i]`.
    pub fn logits(&self, pass: &mut Pass, rows: &[usize], out: &mut Vec<f32>, crew: &dyn Crew) {
        let _ = (pass, rows, out, crew);
        todo!()
    }

    /// The `k` largest logits of each chosen row, largest first; ties go to the smaller token.
    #[must_use]
    pub fn top_k(&self, pass: &mut Pass, rows: &[usize], k: usize, crew: &dyn Crew) -> Vec<Vec<(TokenId, f32)>> {
        let _ = (pass, rows, k, crew);
        todo!()
    }

    /// A pool for at most `tokens` positions of this model's KV.
    #[must_use]
    pub fn kv_pool(&self, format: crate::kv::KvFormat, tokens: Tokens) -> KvPool {
        let _ = (format, tokens);
        todo!()
    }
}
