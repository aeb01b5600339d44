//! A model that serves one request after the other, pass by pass.

use super::{TraceError, Tracer};
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvPool, KvTable, PAGE_TOKENS};
use duet_speculate::successors::{SUCCESSORS, Successors};
use duet_speculate::{Draft, VerifyRows};
use duet_types::{TokenId, Tokens};

/// The likeliest tokens after a row, likeliest first, with their logits.
pub(super) type Likeliest = Vec<(TokenId, f32)>;

/// The model and its memory.
pub(super) struct Stream<'a> {
    model: &'a Model,
    pool: KvPool,
    threads: usize,
    /// Absent only during a pass.
    activations: Option<Activations>,
}

/// A prompt that was read.
pub(super) struct Prompt {
    pub(super) tokens: Vec<TokenId>,
    /// What the model would say after each of its tokens.
    pub(super) successors: Vec<Successors>,
    table: KvTable,
}

/// A verify pass that is complete but for the rows that stay.
pub(super) struct Verified {
    pass: Pass,
    /// After each row: the last token's, then the draft's.
    pub(super) likeliest: Vec<Likeliest>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(tracer: &Tracer<'a>) -> Self {
        let model = tracer.model;
        // A prompt and the answer that goes on from it.
        let pages = 2 * (model.config().context.as_usize().div_ceil(PAGE_TOKENS) + 1);
        let pool = model.kv_pool(tracer.kv_format, Tokens((pages * PAGE_TOKENS) as u32));
        Self { model, pool, threads: tracer.threads, activations: None }
    }

    /// Tokens that an answer to a prompt has room for.
    pub(super) fn room_after(&self, prompt: &[TokenId]) -> usize {
        if prompt.is_empty() { 0 } else { self.model.config().context.as_usize().saturating_sub(prompt.len()) }
    }

    /// Whether a token ends an answer.
    pub(super) fn ends_turn(&self, token: TokenId) -> bool {
        self.model.tokenizer().is_end_of_generation(token)
    }

    /// Reads a prompt in chunks. The likeliest tokens of all its rows are kept: that is the *sampling* of in-context
    /// distribution calibration. (CoordGen §3.3)
    pub(super) fn read(&mut self, tokens: Vec<TokenId>) -> Result<Prompt, TraceError> {
        let mut table = self.pool.table();
        let mut successors = Vec::with_capacity(tokens.len());
        for chunk in tokens.chunks(CHUNK) {
            let (pass, likeliest) = self.pass(Segment::new(table, chunk.to_vec()))?;
            successors.extend(likeliest.iter().map(|likeliest| Successors::new(likeliest)));
            table = self.take_back(pass.finish());
        }
        Ok(Prompt { tokens, successors, table })
    }

    /// Keys and values to go on with after a prompt.
    pub(super) fn table(&self, prompt: &Prompt) -> Result<KvTable, TraceError> {
        Ok(prompt.table.fork(Tokens(prompt.tokens.len() as u32))?)
    }

    /// Computes `last` and a draft that follows it.
    pub(super) fn verify(&mut self, table: KvTable, last: TokenId, draft: &Draft) -> Result<Verified, TraceError> {
        let VerifyRows { tokens, parents } = draft.verify_rows(last, draft.len());
        let (pass, likeliest) = self.pass(Segment { parents, ..Segment::new(table, tokens) })?;
        Ok(Verified { pass, likeliest })
    }

    /// Keeps the rows of `path`.
    pub(super) fn accept(&mut self, verified: Verified, path: Vec<usize>) -> KvTable {
        self.take_back(verified.pass.finish_accepting(&[path]))
    }

    /// A pass of one segment, up to its end.
    fn pass(&mut self, segment: Segment) -> Result<(Pass, Vec<Likeliest>), TraceError> {
        let rows = segment.tokens.len();
        let crew = Scoped { threads: if rows < ROWS_SHARED { 1 } else { self.threads } };
        let activations = self.activations.take().unwrap_or_else(|| Activations::new(self.model, CHUNK));
        let mut pass = Pass::new(self.model, activations, vec![segment]).map_err(|refused| refused.error)?;
        self.model.run_span(&mut pass, 0..self.model.node_count(), &crew);
        let all: Vec<usize> = (0..rows).collect();
        let likeliest = self.model.top_k(&mut pass, &all, SUCCESSORS, &crew);
        Ok((pass, likeliest))
    }

    fn take_back(&mut self, (activations, mut tables): (Activations, Vec<KvTable>)) -> KvTable {
        self.activations = Some(activations);
        tables.pop().expect("a pass gives back the table of its segment")
    }
}

/// Rows of a prompt in a pass. (CoordGen §3.2)
const CHUNK: usize = 256;
/// Rows from which on more threads are faster than one, which have to be started for each node.
const ROWS_SHARED: usize = 16;
