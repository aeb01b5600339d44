//! The seam between the engine and a model: what the engine needs of one, and no more.
//!
//! The real one is [`ModelBackend`](crate::model_backend::ModelBackend); the tests' one is small, deterministic, and
//! keeps the awkward parts: pages run out, kernels panic, nodes must come in order.

use crate::executors::{Ran, Site};
use crate::request::EngineError;
use duet_kernels::crew::Crew;
use duet_model::encoder::Text;
use duet_model::forward::{AttentionStats, BestOfRow, ExpertStats, FateCounts, NotRun};
use duet_model::kv::KvError;
use duet_model::{ExpertMemoryStats, ExpertReads, Tell};
use duet_types::{Class, LaneId, LaneSet, RequestId, TokenId, Tokens};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

/// A model that can be run in passes.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Keys and values of one sequence.
    type Table: Table;
    /// Rows on their way through the nodes.
    type Pass: Send;
    /// State of turning tokens into text.
    type Text: Send;
    /// Some of the tokens that it knows.
    type Vocabulary: Send + Sync;
    /// What a node reads, all rows of a pass.
    type Inputs: Send + Sync;
    /// What some rows of a node came to.
    type Outputs: Send;

    /// Lanes whose executors are devices: kernels of such a lane alone may run without the pass.
    fn device_lanes(&self) -> LaneSet {
        LaneSet::EMPTY
    }

    /// Devices among these lanes that failed since this was last asked.
    fn take_failures(&self, _lanes: LaneSet) -> LaneSet {
        LaneSet::EMPTY
    }

    /// Devices that failed and were not probed well since.
    fn failed(&self) -> LaneSet {
        LaneSet::EMPTY
    }

    /// Tries whether the device of a lost lane works again. Takes as long as a kernel over a few rows.
    fn probe(&self, _lane: LaneId) -> Result<(), NotRun> {
        Ok(())
    }

    /// Lets a lane's device give up what it has of a request's keys and values in memory of its own. Waits for nothing.
    fn drop_copy(&self, _lane: LaneId, _request: RequestId) {}

    /// Its sizes.
    fn shape(&self) -> Shape;

    /// Nodes that a pass goes through.
    fn nodes(&self) -> usize;

    /// What is kept of a sequence may be cut at multiples of this, beside its end.
    fn cuts(&self) -> Tokens {
        Tokens(1)
    }

    /// How full its KV memory is.
    fn kv_pages(&self) -> KvPages;

    /// An empty table.
    fn table(&self) -> Self::Table;

    /// Starts a pass of some rows of each sequence. On failure the tables come back as they were.
    fn begin(&self, rows: Vec<Rows<Self::Table>>) -> Result<Self::Pass, Refused<Self::Table>>;

    /// Whose a pass is, for what it waits for beside lanes.
    fn set_class(&self, _pass: &mut Self::Pass, _class: Class) {}

    /// Says which rows of a pass are read behind the last layer, and perhaps some between them, before a node is run: by the
    /// head, or for their hidden states. All, if nobody says so.
    fn set_head_rows(&self, _pass: &mut Self::Pass, _rows: Range<usize>) {}

    /// Runs a span of nodes on some rows of the pass; spans of a row come in order. If the site may be left, it may come only
    /// to a node whose weights are not in memory; the rows go on there, after [`Self::when_ready`].
    ///
    /// # Errors
    /// If a device failed that nothing may stand in for.
    fn run(
        &self,
        pass: &mut Self::Pass,
        nodes: Range<usize>,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Ran, EngineError>;

    /// Tells somebody when the weights are there that a pass waits for. If it waits for none, who is to be told is returned,
    /// for the caller to tell.
    #[must_use]
    fn when_ready(&self, _pass: &Self::Pass, tell: Tell) -> Option<Tell> {
        Some(tell)
    }

    /// What these nodes of a pass read, the last of them being token-wise and the others done, if a device computes rows
    /// of it without the pass; nothing else.
    fn inputs(&self, pass: &mut Self::Pass, nodes: Range<usize>, site: Site<'_>) -> Option<Self::Inputs>;

    /// Runs some rows on a device, without the pass. Nothing if it did not run them, and somebody is to stand in.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_apart(
        &self,
        inputs: &Self::Inputs,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Option<Self::Outputs>, EngineError>;

    /// Takes what rows came to into their pass.
    ///
    /// # Errors
    /// If they are another pass's.
    fn join(&self, pass: &mut Self::Pass, outputs: &Self::Outputs, crew: &dyn Crew) -> Result<(), EngineError>;

    /// The logits of some rows, one after the other, after all nodes. A buffer that is longer may stay so.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn logits(
        &self,
        pass: &mut Self::Pass,
        rows: &[usize],
        logits: &mut Vec<f32>,
        site: Site<'_>,
    ) -> Result<(), EngineError>;

    /// Says before the last nodes are run that the likeliest tokens of some rows are going to be asked for ([`Self::best`]), so that
    /// a device may find them along with these nodes.
    fn seek_best(&self, _pass: &mut Self::Pass, _rows: &[usize], _count: usize) {}

    /// The likeliest tokens of some rows, after all nodes, at most `count` of each, likeliest first, from a device that then
    /// brings nothing else of their logits back. Nothing where there is none: whoever asks has all logits computed.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn best(
        &self,
        _pass: &mut Self::Pass,
        _rows: &[usize],
        _count: usize,
        _site: Site<'_>,
    ) -> Result<Option<Vec<BestOfRow>>, EngineError> {
        Ok(None)
    }

    /// Adds the final hidden states of some rows to `sum`, one row after the other, after all nodes.
    fn add_hidden(&self, pass: &Self::Pass, rows: Range<usize>, sum: &mut [f64]);

    /// Whether there is an encoder beside the model that answers.
    fn has_encoder(&self) -> bool {
        false
    }

    /// What the encoder made of the texts of a pass, after all nodes; nothing, if it is no pass of the encoder.
    fn encoded(&self, _pass: &Self::Pass) -> Vec<Vec<f32>> {
        Vec::new()
    }

    /// The tokens that occur in a text, if rows of it that are not [read](Self::set_head_rows) are computed far enough for a guess at
    /// what follows them. Takes a microsecond for each token.
    fn vocabulary_of(&self, text: &[TokenId]) -> Option<Self::Vocabulary>;

    /// The likeliest successors of some rows, after all nodes, of those in a vocabulary; without one, of all tokens. For rows that
    /// are not read, a guess.
    fn successors(
        &self,
        pass: &mut Self::Pass,
        rows: Range<usize>,
        among: Option<&Self::Vocabulary>,
        count: usize,
        crew: &dyn Crew,
    ) -> Vec<Vec<(TokenId, f32)>>;

    /// What became of the experts of some rows, after all nodes, where a device has some.
    fn fates(&self, _pass: &Self::Pass, _rows: Range<usize>) -> FateCounts {
        FateCounts::default()
    }

    /// Experts that were not in memory when a pass asked for them, after all nodes, where some are on disk.
    fn expert_reads(&self, _pass: &Self::Pass) -> ExpertReads {
        ExpertReads::default()
    }

    /// What a device did with experts so far.
    fn expert_stats(&self) -> ExpertStats {
        ExpertStats::default()
    }

    /// What was done to have experts in memory that are on disk; none if none are.
    fn expert_memory_stats(&self) -> Option<ExpertMemoryStats> {
        None
    }

    /// What devices did of attention so far.
    fn attention_stats(&self) -> AttentionStats {
        AttentionStats::default()
    }

    /// Ends a pass after its last node: each table has grown by those of its rows that are accepted.
    fn finish(&self, pass: Self::Pass, accepted: &[Accepted]) -> Vec<Self::Table>;

    /// Gives a pass up: each table is as it was before.
    fn abandon(&self, pass: Self::Pass) -> Vec<Self::Table>;

    /// Writes what a table holds.
    fn save(&self, table: &Self::Table, out: &mut dyn Write) -> io::Result<()>;

    /// Reads the first `prefix` positions of what [`Self::save`] wrote, for a sequence that is going to have so many
    /// positions ([`Table::expect`]).
    fn load(&self, positions: Tokens, prefix: Tokens, from: &mut dyn Read) -> io::Result<Self::Table>;

    /// Prepares some KV memory for the passes that follow. Takes a millisecond at most.
    fn warm_memory(&self);

    /// The beginning of a text.
    fn text(&self) -> Self::Text;

    /// The text that became certain with `token`.
    fn push_text(&self, text: &mut Self::Text, token: TokenId) -> String;

    /// The text that was not certain until now.
    fn finish_text(&self, text: &mut Self::Text) -> String;

    /// What a token is called that stands for no text.
    fn special_name(&self, _token: TokenId) -> Option<&str> {
        None
    }

    /// Whether the model ends its turn with `token`.
    fn ends_turn(&self, token: TokenId) -> bool;
}

/// The next rows of one sequence.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    /// Whose they are; nobody's that the scheduler knows, if they are a draft model's.
    pub(crate) request: Option<RequestId>,
    /// What it has computed.
    pub(crate) table: T,
    /// The tokens of the rows, which follow.
    pub(crate) tokens: Vec<TokenId>,
    /// The texts that the tokens are of, if they are the encoder's.
    pub(crate) texts: Option<Arc<[Text]>>,
    /// For a draft that branches, the row that each row follows; `None` is what was computed before.
    pub(crate) parents: Option<Vec<Option<usize>>>,
}

/// Which of its rows a sequence keeps at the end of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    All,
    /// Those of one path.
    Path(Vec<usize>),
}

/// A pass that could not start.
#[derive(Debug)]
pub(crate) struct Refused<T> {
    pub(crate) error: EngineError,
    pub(crate) tables: Vec<T>,
}

/// Keys and values of one sequence.
pub(crate) trait Table: Sized + Send + 'static {
    /// Positions held.
    fn len(&self) -> Tokens;

    /// Forgets positions from `len` on, at which it may be cut ([`Backend::cuts`]).
    fn truncate(&mut self, len: Tokens);

    /// A table that shares the first `prefix` positions, behind which it may be cut.
    fn fork(&self, prefix: Tokens) -> Result<Self, KvError>;

    /// Says how many positions the sequence is to have: one that memory cannot hold whole keeps less.
    fn expect(&mut self, _positions: Tokens) {}

    /// Whether [`Self::expect`] would take long: it would copy keys and values, or give memory back.
    fn would_pass(&self, _positions: Tokens) -> bool {
        false
    }

    /// It may be cut behind this position, and at its end, but not before.
    fn cuts_from(&self) -> Tokens {
        Tokens::ZERO
    }
}

/// Sizes of a model as the engine runs it.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Longest sequence.
    pub(crate) context: Tokens,
    /// Tokens it knows.
    pub(crate) vocabulary: usize,
    /// Width of a row's hidden state.
    pub(crate) hidden: usize,
}

/// How full KV memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvPages {
    pub(crate) free: usize,
    pub(crate) capacity: usize,
}
