//! A prompt, read while a plan is followed, and its answer, decoded on the graphs that are loaded then.

use crate::bed::{Bed, timed};
use crate::forward::{Forward, likeliest};
use crate::graphs::GraphsError;
use duet_kernels::crew::Solo;
use duet_model::kv::KvFormat;
use duet_offload::switching::{Exchange, Loaded, Shelf, read};
use duet_scheduler::progressive::{Blocks, Plan, Role, Timeline};
use duet_types::{Bytes, Nanos, TokenId, Tokens};
use std::time::Instant;

/// What answers.
pub(super) struct Answering<'a> {
    pub(super) bed: &'a Bed,
    pub(super) shelf: &'a Shelf,
    /// Tokens to decode.
    pub(super) output: usize,
}

/// An answer, and what it took from when the prompt came.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// Until the prompt was read.
    pub(super) prefill: Nanos,
    /// Until it could be decoded.
    pub(super) ready: Nanos,
    /// Until the first token was decoded.
    pub(super) first: Nanos,
    /// Until the last one was.
    pub(super) total: Nanos,
    /// How long graphs were waited for.
    pub(super) waited: Nanos,
    /// Loading the graphs that were there when the prompt came, before the clock began.
    pub(super) initial: Nanos,
    /// The most that graphs took at once.
    pub(super) peak: Bytes,
    /// What was decoded.
    pub(super) tokens: Vec<TokenId>,
    logits: Vec<f32>,
}

impl Answering<'_> {
    /// Reads the prompt by the plan and answers it.
    pub(super) fn answer(&self, blocks: &Blocks, plan: Plan, prompt: &[TokenId]) -> Result<Answer, GraphsError> {
        let Self { bed, shelf, output } = *self;
        let (initial, loaded) = timed(|| Loaded::load(shelf, blocks.rows(), plan.initial()));
        let loaded = loaded?;
        let pool = bed.model.kv_pool(KvFormat::F16, Tokens((prompt.len() + output + 1) as u32));
        let start = Instant::now();
        let since = || Nanos::from(start.elapsed());
        let ((read, prefill, waited), loaded, timeline) =
            Exchange::new(shelf, blocks, plan, loaded).run(|exchange| {
                let read = read(&bed.model, exchange, pool.table(), prompt, &Solo)?;
                let prefill = since();
                Ok((read, prefill, exchange.wait_switched()?))
            })?;
        let ready = since();
        let device = loaded.assembled(Role::Decode, shelf)?;
        let forward = Forward { model: &bed.model, device: Some(&device), experts: None, crew: &Solo };
        let mut first = None;
        let (_, tokens) = forward.decode(read.kv, likeliest(&read.logits), output, &mut || {
            first.get_or_insert_with(since);
        })?;
        Ok(Answer {
            prefill,
            ready,
            first: first.unwrap_or_else(since),
            total: since(),
            waited: timeline.stalled + waited,
            initial,
            peak: timeline.peak,
            tokens,
            logits: read.logits,
        })
    }

    /// Reads the prompt by the plan only. What took how long.
    pub(super) fn prefill(&self, blocks: &Blocks, plan: Plan, prompt: &[TokenId]) -> Result<Timeline, GraphsError> {
        let Self { bed, shelf, .. } = *self;
        let loaded = Loaded::load(shelf, blocks.rows(), plan.initial())?;
        let pool = bed.model.kv_pool(KvFormat::F16, Tokens(prompt.len() as u32));
        let (_, _, timeline) = Exchange::new(shelf, blocks, plan, loaded)
            .run(|exchange| read(&bed.model, exchange, pool.table(), prompt, &Solo))?;
        Ok(timeline)
    }
}

impl Answer {
    /// Tokens at the beginning that are the other one's.
    pub(super) fn same_tokens(&self, other: &Self) -> usize {
        self.tokens.iter().zip(&other.tokens).take_while(|(one, other)| one == other).count()
    }

    /// The largest difference of a logit after the prompt, over the other one's largest.
    pub(super) fn logits_off(&self, other: &Self) -> f64 {
        let largest = other.logits.iter().fold(f32::MIN_POSITIVE, |largest, logit| largest.max(logit.abs()));
        let off = self.logits.iter().zip(&other.logits).map(|(one, other)| (one - other).abs());
        f64::from(off.fold(0.0, f32::max) / largest)
    }
}
