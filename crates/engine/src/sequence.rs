//! One generation on its way: its tokens, its KV, its way to choose and to end.
//!
//! A sequence is in one place at a time: with the world, or with the kernel that computes for it. It is the lane's own
//! while the kernel runs, so tokens are chosen, turned into text and sent without a lock.

use crate::backend::Backend;
use crate::clock::Clock;
use crate::outbox::Outbox;
use crate::request::{EngineError, GenerateRequest, GenerationEvent, Usage};
use crate::sampling::{Sampler, Scratch, logprobs};
use crate::stop::{Matched, StopMatcher};
use duet_kernels::crew::Crew;
use duet_scheduler::{Completes, Kernel, Outcome};
use duet_types::{FinishReason, Instant, TokenId, Tokens};
use std::ops::Range;
use std::time::Duration;

/// One generation.
pub(crate) struct Sequence<B: Backend> {
    /// The prompt, then what was generated.
    tokens: Vec<TokenId>,
    prompt_len: usize,
    cached: Tokens,
    /// Length at which it must end.
    len_max: usize,
    compute: Compute<B>,
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

/// Buffers of a kernel's last step, reused by the next kernel.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    logits: Vec<f32>,
    scratch: Scratch,
}

/// Where its keys and values are.
enum Compute<B: Backend> {
    /// Nowhere: it has not begun, or a kernel lost them.
    Nothing,
    Between(B::Table),
    UnderWay(B::Pass),
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
        let GenerateRequest { prompt, sampling, stop, class: _, logprobs } = request;
        let context = backend.shape().context.as_usize();
        let len_max = stop.max_tokens.map_or(context, |max| context.min(prompt.len().saturating_add(max.as_usize())));
        Self {
            prompt_len: prompt.len(),
            cached: Tokens::ZERO,
            len_max,
            compute: Compute::Nothing,
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

    /// Gives it the table to go on with, which holds the prompt's beginning. Returns how much that is.
    pub(crate) fn restore(&mut self, table: B::Table) -> Tokens {
        use crate::backend::Table as _;
        self.cached = table.len();
        self.compute = Compute::Between(table);
        self.cached
    }

    /// The table, if it has one and no pass is under way.
    pub(crate) fn table(&self) -> Option<&B::Table> {
        match &self.compute {
            Compute::Between(table) => Some(table),
            Compute::Nothing | Compute::UnderWay(_) => None,
        }
    }

    /// Runs `kernel`, to the token if it completes one.
    pub(crate) fn execute(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        crew: &dyn Crew,
        workspace: &mut Workspace,
    ) -> Result<Outcome, EngineError> {
        // It is taken out while it is changed: a panic or an error loses it, and it must not be used again.
        let mut pass = match std::mem::replace(&mut self.compute, Compute::Nothing) {
            Compute::Between(table) => backend.begin(table, self.rows(&kernel.rows))?,
            Compute::UnderWay(pass) => pass,
            Compute::Nothing => return Err(EngineError::Internal("its keys and values are lost".to_owned())),
        };
        backend.run(&mut pass, kernel.nodes.clone(), crew);
        if kernel.completes == Completes::Span {
            self.compute = Compute::UnderWay(pass);
            return Ok(Outcome::Progressed);
        }
        if kernel.completes == Completes::Token {
            backend.logits(&mut pass, &mut workspace.logits, crew);
        }
        self.compute = Compute::Between(backend.finish(pass));
        match kernel.completes {
            Completes::Span | Completes::Chunk => Ok(Outcome::Progressed),
            Completes::Token => Ok(Outcome::Token { finished: self.choose(backend, workspace) }),
        }
    }

    /// Remembers why its kernel failed, for the client.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.compute = Compute::Nothing;
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
    pub(crate) fn into_kept(mut self, backend: &B) -> Option<(Vec<TokenId>, B::Table)> {
        use crate::backend::Table as _;
        let table = match std::mem::replace(&mut self.compute, Compute::Nothing) {
            Compute::Nothing => return None,
            Compute::Between(table) => table,
            Compute::UnderWay(pass) => backend.abandon(pass),
        };
        self.tokens.truncate(table.len().as_usize());
        Some((std::mem::take(&mut self.tokens), table))
    }

    fn rows(&self, rows: &Range<Tokens>) -> &[TokenId] {
        &self.tokens[rows.start.as_usize()..rows.end.as_usize()]
    }

    /// Chooses the next token and sends it. Returns why it is the last, if it is.
    fn choose(&mut self, backend: &B, workspace: &mut Workspace) -> Option<FinishReason> {
        let Workspace { logits, scratch } = workspace;
        // The sampler changes the logits, but the model's own are reported.
        let reported = self.logprobs.map(|alternatives| (logits.clone(), alternatives));
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
