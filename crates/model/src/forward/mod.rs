//! The forward pass, cut at HEG nodes.
//!
//! A [`Pass`] carries the rows of one or several sequences through the layers. It owns all state between nodes
//! (activations, KV tables), so it may stop after any node and go on later, on any crew. A row's result is
//! bit-identical whatever other rows share the pass, however the rows were chunked and whatever the crew's size.

mod apart;
mod attention_wise;
mod context_head;
mod dispatched;
mod exact;
mod expert_wise;
mod hidden;
mod nodes;
mod pass;
mod recurrent;
mod routes;
mod span_wise;
mod token_wise;

pub use apart::{NodeInputs, NodeOutputs};
pub use attention_wise::{AttentionStats, AttentionWise, CacheRows, ChunkRows, ChunksTaken};
pub use context_head::ContextHead;
pub use duet_kernels::fused::RoutedRows;
pub use duet_types::{Node, NodeOrder};
pub use exact::{NotPrepared, Prepared, PreparesRows};
pub use expert_wise::{BegunLaunch, ExpertStats, ExpertWise, Fate, FateCounts, ProjectedBy};
pub use pass::{Activations, Pass, PassError, PassRefused, Segment};
pub use routes::Routes;
pub use span_wise::{SpanRows, SpanSequence, SpanWise};
pub use token_wise::{Begun, NotRun, TokenWise};

use crate::kv::{KvFormat, KvPool, PAGE_TOKENS};
use crate::load::Model;
use duet_kernels::attention::KvLayout;
use duet_types::Tokens;

impl Model {
    /// A pool for at most `tokens` positions of this model's KV.
    #[must_use]
    pub fn kv_pool(&self, format: KvFormat, tokens: Tokens) -> KvPool {
        KvPool::new(self.kv_layout(format), tokens.as_usize().div_ceil(PAGE_TOKENS))
    }

    /// The shape of this model's KV pages.
    #[must_use]
    pub fn kv_layout(&self, format: KvFormat) -> KvLayout {
        let blueprint = self.blueprint();
        KvLayout {
            layers: blueprint.attention_layers(),
            kv_heads: blueprint.kv_heads,
            head_dim: blueprint.head_dim,
            format,
            state: blueprint.convolution_layers() * blueprint.columns(),
        }
    }
}
