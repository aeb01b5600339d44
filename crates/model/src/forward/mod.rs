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
mod from_disk;
mod head_rows;
mod hidden;
mod holds_layers;
mod layer_inputs;
mod nodes;
mod pass;
mod recurrent;
mod routes;
mod sought;
mod span_wise;
mod token_wise;

pub use apart::{NodeInputs, NodeOutputs};
pub use attention_wise::{AttentionStats, AttentionWise, CacheRows, ChunkRows, ChunksTaken};
pub use context_head::ContextHead;
pub use duet_kernels::fused::RoutedRows;
pub use duet_types::{Node, NodeOrder};
pub use exact::{NotPrepared, Prepared, PreparesRows};
pub use expert_wise::{BegunLaunch, ExpertStats, ExpertWise, Fate, FateCounts, ProjectedBy};
pub use from_disk::Came;
pub use holds_layers::HoldsLayers;
pub use pass::{Activations, Pass, PassError, PassRefused, Segment};
pub use routes::Routes;
pub use sought::Sought;
pub use span_wise::{Brought, SpanRows, SpanSequence, SpanWise};
pub use token_wise::{Begun, BestOfRow, NotRun, TokenWise};

use crate::kv::{KvFormat, KvPool, PAGE_TOKENS, StateLayout};
use crate::load::Model;
use duet_kernels::attention::KvLayout;
use duet_types::Tokens;

impl Model {
    /// A pool for at most `tokens` positions of this model's KV, of however many sequences.
    #[must_use]
    pub fn kv_pool(&self, format: KvFormat, tokens: Tokens) -> KvPool {
        let pages = tokens.as_usize().div_ceil(PAGE_TOKENS);
        // The positions of a page may be a sequence, and end where a state is kept.
        let states = self.kv_states(format).map_or(0, |states| 2 * states.pages);
        self.kv_pool_of_pages(format, pages * (1 + states))
    }

    /// A pool of so many pages, of which states beside them count as some.
    #[must_use]
    pub fn kv_pool_of_pages(&self, format: KvFormat, pages: usize) -> KvPool {
        KvPool::with_states(self.kv_layout(format), self.kv_states(format), pages)
    }

    /// The same for a crew alone, where sequences that do not fit whole let windows pass, if some layers have one.
    #[must_use]
    pub fn kv_pool_with_windows(&self, format: KvFormat, pages: usize) -> KvPool {
        match self.kv_window() {
            Some(window) => KvPool::with_windows(self.kv_layout(format), window, pages),
            None => self.kv_pool_of_pages(format, pages),
        }
    }

    /// The longest window of its layers, where others see all positions.
    #[must_use]
    pub fn kv_window(&self) -> Option<Tokens> {
        self.blueprint().window()
    }

    /// The shape of this model's KV pages.
    #[must_use]
    pub fn kv_layout(&self, format: KvFormat) -> KvLayout {
        self.blueprint().kv_layout(format)
    }

    /// What is kept of a sequence beside its pages: matrices, and the columns of their layers.
    #[must_use]
    pub fn kv_states(&self, format: KvFormat) -> Option<StateLayout> {
        self.blueprint().kv_states(format)
    }

    /// The positions at which what is kept of a sequence may be cut: multiples of this.
    #[must_use]
    pub fn cuts(&self) -> Tokens {
        let of_pages = if self.kv_layout(KvFormat::Int8).state > 0 { PAGE_TOKENS } else { 1 };
        let states = self.kv_states(KvFormat::Int8);
        Tokens(states.map_or(of_pages, |states| states.distance()) as u32)
    }
}
