//! Kernels: how a request's work is cut.
//!
//! A prompt is cut in chunks of at most `chunk` tokens, a decode step is one row; each is one pass through the nodes
//! of the HEG. A pass is cut in spans of at most `span_nodes` nodes, and a span is a kernel: the unit that is
//! launched, and the longest that anything else has to wait. Cutting loses nothing, since a pass holds its own state
//! between nodes. (Agent.xpu §4.2: chunked kernels; §4.4: preemption at their boundaries)

use crate::config::SchedulerConfig;
use crate::request_table::{Lifecycle, PassUnderWay};
use duet_types::{KernelId, RequestId, Stage, Tokens};
use std::ops::Range;

/// A piece of one request's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its id.
    pub id: KernelId,
    /// Whose work it is.
    pub request: RequestId,
    /// What it does.
    pub stage: Stage,
    /// Positions of the sequence that the pass computes: a chunk of the prompt, or the last token's one row.
    pub rows: Range<Tokens>,
    /// The span of HEG nodes. It begins a pass if it starts at 0, and goes on with one otherwise.
    pub nodes: Range<usize>,
    /// What is complete at its end.
    pub completes: Completes,
}

/// What is complete when a kernel is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completes {
    /// A span of nodes: the pass goes on.
    Span,
    /// A pass whose rows leave part of the prompt to be computed.
    Chunk,
    /// A pass whose last row yields the next token.
    Token,
}

/// The next kernel of a request that has begun; `None` for one that has not.
pub(crate) fn next_kernel(
    config: &SchedulerConfig,
    id: KernelId,
    request: RequestId,
    prompt: Tokens,
    lifecycle: &Lifecycle,
) -> Option<Kernel> {
    let (stage, first_row, rows_left, pass) = match lifecycle {
        Lifecycle::Queued | Lifecycle::Restoring => return None,
        Lifecycle::Prefilling { computed, pass, .. } => (Stage::Prefill, *computed, prompt - *computed, pass),
        // The last generated token is the one whose keys and values are not computed yet.
        Lifecycle::Decoding { generated, pass } => (Stage::Decode, prompt + *generated - Tokens(1), Tokens(1), pass),
    };
    let PassUnderWay { rows, node } = pass
        .clone()
        .unwrap_or_else(|| PassUnderWay { rows: first_row..first_row + rows_left.min(config.chunk), node: 0 });
    let end = config.span_nodes.map_or(config.nodes, |span| config.nodes.min(node + span));
    let completes = match stage {
        _ if end < config.nodes => Completes::Span,
        Stage::Prefill if rows.end < prompt => Completes::Chunk,
        Stage::Prefill | Stage::Decode | Stage::Verify => Completes::Token,
    };
    Some(Kernel { id, request, stage, rows, nodes: node..end, completes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::LaneSet;

    fn kernel(config: &SchedulerConfig, lifecycle: &Lifecycle) -> Kernel {
        next_kernel(config, KernelId(0), RequestId(0), Tokens(600), lifecycle).unwrap()
    }

    fn prefilling(computed: Tokens, pass: Option<PassUnderWay>) -> Lifecycle {
        Lifecycle::Prefilling { cached: Tokens(0), computed, pass }
    }

    #[test]
    fn a_prompt_is_cut_in_chunks_and_a_remainder() {
        let config = SchedulerConfig::new(LaneSet::first(1), 10);
        let chunk = kernel(&config, &prefilling(Tokens(100), None));
        assert_eq!((chunk.rows, chunk.completes), (Tokens(100)..Tokens(356), Completes::Chunk));
        let remainder = kernel(&config, &prefilling(Tokens(356), None));
        assert_eq!((remainder.rows, remainder.completes), (Tokens(356)..Tokens(600), Completes::Token));
    }

    #[test]
    fn a_pass_is_cut_in_spans() {
        let config = SchedulerConfig { span_nodes: Some(4), ..SchedulerConfig::new(LaneSet::first(1), 10) };
        let pass = |node| Some(PassUnderWay { rows: Tokens(0)..Tokens(256), node });
        let first = kernel(&config, &prefilling(Tokens(0), None));
        assert_eq!((first.nodes, first.completes), (0..4, Completes::Span));
        let last = kernel(&config, &prefilling(Tokens(0), pass(8)));
        assert_eq!((last.nodes, last.completes), (8..10, Completes::Chunk));
    }

    #[test]
    fn the_first_decode_row_is_the_first_generated_token() {
        let config = SchedulerConfig::new(LaneSet::first(1), 10);
        let row = kernel(&config, &Lifecycle::Decoding { generated: Tokens(1), pass: None });
        assert_eq!((row.stage, row.rows, row.completes), (Stage::Decode, Tokens(600)..Tokens(601), Completes::Token));
    }
}
