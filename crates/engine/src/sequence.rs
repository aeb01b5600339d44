//! One generation on its way: its tokens, its KV, its way to choose and to end.
//!
//! A sequence is in one place at a time: with the world, or in the pass that computes for it. It is the lane's own while
//! a kernel runs, so tokens are chosen, turned into text and sent without a lock.

use crate::backend::{Backend, Rows, Table as _};
use crate::clock::Clock;
use crate::outbox::Outbox;
use crate::request::{EngineError, GenerateRequest, GenerationEvent, Usage};
use crate::sampling::{Sampler, Scratch, logprobs};
use crate::stop::{Matched, StopMatcher};
use duet_types::{FinishReason, Instant, TokenId, Tokens};
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

/// One generation.
pub(crate) struct Sequence<B: Backend> {
    /// The prompt, then what was generated.
    tokens: Vec<TokenId>,
    prompt_len: usize,
    cached: Tokens,
    /// Length at which it must end.
    len_max: usize,
    /// Its keys and values. Absent before it begins, in a pass, on disk, and when they were lost.
    table: Option<B::Table>,
    sampler: Sampler,
    logprobs: Option<u8>,
    ending: Ending,
    text: B::Text,
    stops: StopMatcher,
    /// Text that goes out with the end.
    tail: String,
    outbox: Outbox,
    times: Times,
    /// Why its last kernel failed.
    failure: Option<EngineError>,
}

/// Buffers of a pass's last step, reused by the next pass.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Of all rows that yield a token.
    pub(crate) logits: Vec<f32>,
    /// One for each member of the crew.
    pub(crate) scratches: Vec<Mutex<Scratch>>,
}

/// What the model's end-of-turn tokens do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    AtEndOfTurn,
    IgnoresEndOfTurn,
}

struct Times {
    clock: Clock,
    submitted: Instant,
    first_token: Option<Instant>,
}

impl<B: Backend> Sequence<B> {
    /// A sequence with nothing computed. The request must be valid. `seed` is used if it has none.
    pub(crate) fn new(backend: &B, request: GenerateRequest, seed: u64, outbox: Outbox, clock: Clock) -> Self {
        let GenerateRequest { prompt, sampling, stop, logprobs, class: _, flow: _, tenant: _, user: _, task: _ } =
            request;
        let context = backend.shape().context.as_usize();
        let len_max = stop.max_tokens.map_or(context, |max| context.min(prompt.len().saturating_add(max.as_usize())));
        Self {
            prompt_len: prompt.len(),
            cached: Tokens::ZERO,
            len_max,
            table: None,
            sampler: Sampler::new(&sampling, &prompt, seed),
            logprobs,
            ending: if stop.ignore_eos { Ending::IgnoresEndOfTurn } else { Ending::AtEndOfTurn },
            text: backend.text(),
            stops: StopMatcher::new(stop.stop),
            tail: String::new(),
            outbox,
            times: Times { clock, submitted: clock.now(), first_token: None },
            failure: None,
            tokens: prompt,
        }
    }

    /// The prompt.
    pub(crate) fn prompt(&self) -> &[TokenId] {
        &self.tokens[..self.prompt_len]
    }

    /// Its tokens: the prompt, and what was generated.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Gives it the table to go on with, which holds the prompt's beginning and was somebody else's.
    pub(crate) fn attach(&mut self, table: B::Table) -> Tokens {
        self.cached = table.len();
        self.put_back(table)
    }

    /// Gives its own table back to it.
    pub(crate) fn put_back(&mut self, table: B::Table) -> Tokens {
        let len = table.len();
        self.table = Some(table);
        len
    }

    /// Takes its table away.
    pub(crate) fn take_table(&mut self) -> Option<B::Table> {
        self.table.take()
    }

    /// Its next rows, for a pass. Nothing if its keys and values were lost.
    pub(crate) fn take_rows(&mut self, rows: &Range<Tokens>) -> Option<Rows<B::Table>> {
        let table = self.table.take()?;
        let tokens = self.tokens[rows.start.as_usize()..rows.end.as_usize()].to_vec();
        Some(Rows { table, tokens })
    }

    /// Remembers why its pass failed, for the client.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.failure = Some(error);
    }

    /// Tells the client that it ended.
    pub(crate) fn finish(&mut self, backend: &B, reason: FinishReason) {
        if reason == FinishReason::Cancelled {
            // What was held back is all there will be.
            self.flush(backend);
        }
        let text = std::mem::take(&mut self.tail);
        let usage = self.usage();
        self.outbox.end(GenerationEvent::Finished { text, reason, usage });
    }

    /// Tells the client that it could not go on: for `error`, unless its kernel knew better.
    pub(crate) fn finish_failed(&mut self, error: EngineError) {
        let error = self.failure.take().unwrap_or(error);
        self.outbox.end(GenerationEvent::Failed(error));
    }

    /// Its keys and values and the tokens they are of, if there are any to keep.
    pub(crate) fn into_kept(mut self) -> Option<(Vec<TokenId>, B::Table)> {
        let table = self.table.take()?;
        self.tokens.truncate(table.len().as_usize());
        Some((std::mem::take(&mut self.tokens), table))
    }

    /// Chooses the next token and sends it. Returns why it is the last, if it is.
    pub(crate) fn choose(&mut self, backend: &B, logits: &mut [f32], scratch: &mut Scratch) -> Option<FinishReason> {
        // The sampler changes the logits, but the model's own are reported.
        let reported = self.logprobs.map(|alternatives| (logits.to_vec(), alternatives));
        let token = self.sampler.choose(logits, scratch);
        let logprobs = reported.map(|(logits, alternatives)| logprobs(&logits, token, alternatives, scratch));
        self.tokens.push(token);
        self.times.first_token.get_or_insert_with(|| self.times.clock.now());

        let ends_turn = self.ending == Ending::AtEndOfTurn && backend.ends_turn(token);
        let new = if ends_turn { String::new() } else { backend.push_text(&mut self.text, token) };
        let (text, stopped) = match self.stops.push(new) {
            Matched::Nothing(text) => (text, false),
            Matched::Stop(text) => (text, true),
        };
        self.outbox.send(GenerationEvent::Token { token, text, logprobs });
        if stopped {
            return Some(FinishReason::Stop);
        }
        let reason = match () {
            () if ends_turn => FinishReason::Stop,
            () if self.tokens.len() >= self.len_max => FinishReason::Length,
            () => return None,
        };
        Some(self.flush(backend).unwrap_or(reason))
    }

    /// Brings out text that was held back. Returns why it ended if that completes a stop string.
    fn flush(&mut self, backend: &B) -> Option<FinishReason> {
        let rest = backend.finish_text(&mut self.text);
        match self.stops.push(rest) {
            Matched::Nothing(text) => {
                self.tail = text + &self.stops.finish();
                None
            }
            Matched::Stop(text) => {
                self.tail = text;
                Some(FinishReason::Stop)
            }
        }
    }

    fn usage(&self) -> Usage {
        let since = |end: Instant| Duration::from_nanos((end - self.times.submitted).0);
        let total = since(self.times.clock.now());
        Usage {
            prompt: Tokens(self.prompt_len as u32),
            cached: self.cached,
            generated: Tokens((self.tokens.len() - self.prompt_len) as u32),
            // Without a token there was no first one; the whole time was waiting.
            time_to_first_token: self.times.first_token.map_or(total, since),
            total,
        }
    }
}
