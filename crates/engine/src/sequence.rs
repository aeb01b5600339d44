//! One generation on its way: its tokens, its KV, its way to choose and to end.
//!
//! A sequence is in one place at a time: with the world, or in the pass that computes for it. It is the lane's own while
//! a kernel runs, so tokens are chosen, turned into text and sent without a lock.

mod drafts;

use crate::backend::{Accepted, Backend, Rows, Table as _};
use crate::calibration::Vocabulary;
use crate::clock::Clock;
use crate::constraint::{Constrained, Held};
use crate::outbox::Outbox;
use crate::people::Waiting;
use crate::pooled::Pooled;
use crate::prompt_scores::PromptScores;
use crate::request::{EngineError, GenerateRequest, GenerationEvent, Output, Progress, TokenLogprobs, Usage};
use crate::sampling::{Candidate, Sampler, Scratch, Wanted, logprobs};
use crate::speculation::Speculation;
use crate::stop::{Matched, StopMatcher};
use crate::thought::Thought;
use duet_kernels::crew::Crew;
use duet_model::ExpertReads;
use duet_model::encoder::Text;
use duet_model::forward::FateCounts;
use duet_scheduler::{Generated, HeadRows, Member, Offer, Yields};
use duet_speculate::VerifyRows;
use duet_types::{FinishReason, Instant, Nanos, Net, RequestId, Stage, TenantId, TokenId, Tokens};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One generation.
pub(crate) struct Sequence<B: Backend> {
    tenant: TenantId,
    /// Present while a person waits for it.
    _waiting: Option<Waiting>,
    /// The prompt, then what was generated.
    tokens: Vec<TokenId>,
    prompt_len: usize,
    cached: Tokens,
    /// Length at which it must end.
    len_max: usize,
    leaves: Leaves,
    /// Its keys and values. Absent before it begins, in a pass, on disk, and when they were lost.
    table: Option<B::Table>,
    sampler: Sampler,
    /// Absent if every token may come.
    constrained: Option<Box<Constrained>>,
    /// Absent if it may reason for as long as it likes.
    thought: Option<Box<Thought>>,
    /// Absent if nothing is drafted.
    speculation: Option<Box<Speculation>>,
    /// Present while the prompt is read, if it calibrates drafts.
    vocabulary: Option<Vocabulary<B>>,
    /// Present if its prompt's embedding is wanted, and no answer.
    pooled: Option<Pooled>,
    /// Present if it is the encoder's.
    encoding: Option<Encoding>,
    /// Present if it is wanted how likely its prompt is.
    scores: Option<PromptScores>,
    /// Where its rows' experts were computed.
    experts: FateCounts,
    expert_reads: ExpertReads,
    begun: Begun,
    /// Tokens of its prompt that drafters have read.
    drafters_read: usize,
    logprobs: Option<u8>,
    ending: Ending,
    /// Special tokens that are written out.
    marks: Vec<TokenId>,
    progress: Progress,
    text: B::Text,
    stops: StopMatcher,
    /// Text that goes out with the end.
    tail: String,
    outbox: Outbox,
    times: Times,
    /// Why its last kernel failed.
    failure: Option<EngineError>,
}

/// Texts that are encoded.
struct Encoding {
    texts: Arc<[Text]>,
    /// What they came to.
    results: Vec<Vec<f32>>,
}

/// The rows of a pass that yield a sequence its next tokens.
#[derive(Debug)]
pub(crate) struct Yielding<'a> {
    /// Of all rows, one after the other; absent where no more than the likeliest tokens was [wanted](Sequence::wanted).
    pub(crate) logits: Option<&'a mut [f32]>,
    /// The likeliest tokens of each.
    pub(crate) likeliest: &'a [Vec<Candidate>],
}

/// Buffers of a pass's last step, reused by the next pass.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Of all rows that yield a token.
    pub(crate) logits: Vec<f32>,
    /// One for each member of the crew.
    pub(crate) scratches: Vec<Mutex<Scratch>>,
}

impl Workspace {
    /// The logits, and a scratch for each member of a crew.
    pub(crate) fn parts(&mut self, crew: &dyn Crew) -> (&mut [f32], &[Mutex<Scratch>]) {
        self.scratches.resize_with(self.scratches.len().max(crew.size()), Mutex::default);
        (&mut self.logits, &self.scratches)
    }
}

/// What the model's end-of-turn tokens do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    AtEndOfTurn,
    IgnoresEndOfTurn,
}

/// What may stand in for the beginning of its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Keys and values that are kept, wherever they end.
    Anywhere,
    /// Nothing: more than keys and values is wanted of each row, and nothing more is kept.
    FirstToken,
}

/// What stays of its keys and values when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// All of them.
    Kept,
    /// Nothing: nobody goes on from a text that was only read, and conversations need the room.
    Nothing,
}

/// Whether it was in a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    NotYet,
    Yes,
}

struct Times {
    clock: Clock,
    submitted: Instant,
    first_token: Option<Instant>,
    /// For how long masks were waited for in this pass.
    waited: Nanos,
}

impl<B: Backend> Sequence<B> {
    /// A sequence with nothing computed. The request must be valid. `seed` is used if it has none.
    pub(crate) fn new(
        backend: &B,
        request: GenerateRequest,
        (speculation, constrained): (Option<Box<Speculation>>, Option<Box<Constrained>>),
        seed: u64,
        outbox: Outbox,
        clock: Clock,
    ) -> Self {
        let GenerateRequest {
            prompt,
            sampling,
            stop,
            logprobs,
            prompt_logprobs,
            marks,
            progress,
            output,
            thought,
            tenant,
            ..
        } = request;
        let shape = backend.shape();
        let context = shape.context.as_usize();
        let answer_max = if output == Output::Answer { stop.max_tokens } else { Some(Tokens::ZERO) };
        let len_max = answer_max.map_or(context, |max| context.min(prompt.len().saturating_add(max.as_usize())));
        let is_kept = output == Output::KeptPrompt || len_max > prompt.len();
        Self {
            tenant,
            _waiting: None,
            prompt_len: prompt.len(),
            cached: Tokens::ZERO,
            len_max,
            leaves: if is_kept { Leaves::Kept } else { Leaves::Nothing },
            table: None,
            sampler: Sampler::new(&sampling, &prompt, seed),
            constrained,
            thought: thought.map(|bound| Box::new(Thought::new(bound))),
            speculation,
            vocabulary: None,
            pooled: (output == Output::Embedding).then(|| Pooled::new(shape.hidden)),
            encoding: None,
            scores: prompt_logprobs.map(PromptScores::new),
            experts: FateCounts::default(),
            expert_reads: ExpertReads::default(),
            begun: Begun::NotYet,
            drafters_read: 0,
            logprobs,
            ending: if stop.ignore_eos { Ending::IgnoresEndOfTurn } else { Ending::AtEndOfTurn },
            marks,
            progress,
            text: backend.text(),
            stops: StopMatcher::new(stop.stop),
            tail: String::new(),
            outbox,
            times: Times { clock, submitted: clock.now(), first_token: None, waited: Nanos::ZERO },
            failure: None,
            tokens: prompt,
        }
    }

    /// A person waits for it.
    pub(crate) fn waited_for(self, waiting: Option<Waiting>) -> Self {
        Self { _waiting: waiting, ..self }
    }

    /// Some texts for the encoder. The request must be valid.
    pub(crate) fn encoding(backend: &B, texts: Arc<[Text]>, outbox: Outbox, clock: Clock) -> Self {
        let prompt: Vec<TokenId> = texts.iter().flat_map(|text| text.tokens()).copied().collect();
        let request = GenerateRequest { prompt, output: Output::KeptPrompt, ..GenerateRequest::default() };
        let sequence = Self::new(backend, request, (None, None), 0, outbox, clock);
        let encoding = Some(Encoding { texts, results: Vec::new() });
        Self { encoding, leaves: Leaves::Nothing, len_max: sequence.prompt_len, ..sequence }
    }

    /// Which model it goes through.
    pub(crate) fn net(&self) -> Net {
        if self.encoding.is_some() { Net::Encoder } else { Net::Decoder }
    }

    /// The prompt.
    pub(crate) fn prompt(&self) -> &[TokenId] {
        &self.tokens[..self.prompt_len]
    }

    /// Its tokens: the prompt, and what was generated.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Positions that it is going to have: its tokens', and the next one's.
    pub(crate) fn expects(&self) -> Tokens {
        Tokens(self.tokens.len() as u32 + 1)
    }

    /// What may stand in for the beginning of its prompt.
    pub(crate) fn start(&self) -> Start {
        if self.pooled.is_some() || self.scores.is_some() || self.encoding.is_some() {
            Start::FirstToken
        } else {
            Start::Anywhere
        }
    }

    /// Which rows of its prompt go through the head, for the scheduler's predictions.
    pub(crate) fn prompt_head(&self) -> HeadRows {
        if self.scores.is_some() { HeadRows::All } else { HeadRows::Last }
    }

    /// Whether its prompt is all that is read of it: nothing is generated.
    fn is_read_only(&self) -> bool {
        self.len_max == self.prompt_len
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
    pub(crate) fn take_rows(&mut self, backend: &B, member: &Member) -> Option<Rows<B::Table>> {
        let table = self.table.take()?;
        if std::mem::replace(&mut self.begun, Begun::Yes) == Begun::NotYet {
            self.prepare_drafts(backend);
        }
        let (start, end) = (member.rows.start.as_usize(), member.rows.end.as_usize());
        self.read_for_drafts(end);
        let VerifyRows { tokens, parents } = match (member.stage, &self.speculation) {
            (Stage::Verify, Some(speculation)) => speculation.latest().verify_rows(self.tokens[start], end - start - 1),
            _ => VerifyRows { tokens: self.tokens[start..end].to_vec(), parents: None },
        };
        let texts = self.encoding.as_ref().map(|encoding| Arc::clone(&encoding.texts));
        Some(Rows { request: Some(member.request), table, tokens, texts, parents })
    }

    /// Remembers why it failed, or its pass, for the client.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.failure = Some(error);
    }

    /// Whether it failed since its last pass that did not.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Its pass went well, after others that did not.
    pub(crate) fn recovered(&mut self) {
        self.failure = None;
    }

    /// Tells the client that it ended.
    pub(crate) fn finish(&mut self, backend: &B, reason: FinishReason) {
        if reason == FinishReason::Cancelled {
            // What was held back is all there will be.
            self.flush(backend);
        }
        let (prompt, answer) = self.tokens.split_at(self.prompt_len);
        if let Some(speculation) = self.speculation.as_mut().filter(|_| reason != FinishReason::Cancelled) {
            speculation.finished(prompt, answer);
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

    /// Its keys and values and the tokens they are of, if there are any to keep. It has none from then on.
    pub(crate) fn take_kept(&mut self) -> Option<(Vec<TokenId>, B::Table)> {
        let table = self.table.take()?;
        if self.leaves == Leaves::Nothing {
            return None;
        }
        self.tokens.truncate(table.len().as_usize());
        Some((std::mem::take(&mut self.tokens), table))
    }

    /// Chooses the next tokens from the logits of its rows, one after the other, for as long as they were drafted; sends
    /// them, and drafts what may follow. Where its prompt is only read, it sends the embedding, if that is wanted, and is
    /// done. Returns what came of it, and which rows stay.
    pub(crate) fn yields(
        &mut self,
        backend: &B,
        request: RequestId,
        rows: &mut Yielding<'_>,
        scratch: &mut Scratch,
    ) -> (Generated, Accepted) {
        if self.is_read_only() {
            // For the scheduler it is a token: the first and the last.
            return (Generated::one(request, Some(self.was_read())), Accepted::All);
        }
        let drafted = rows.likeliest.len() - 1;
        let before = self.tokens.len();
        let mut path = vec![0];
        let finished = loop {
            let row = path[path.len() - 1];
            let finished = self.choose(backend, rows, row, scratch);
            let token = self.tokens[self.tokens.len() - 1];
            let Some(speculation) = self.speculation.as_mut().filter(|_| finished.is_none()) else { break finished };
            speculation.accept(token);
            match speculation.latest().follows(row, token, drafted) {
                Some(next) => path.push(next),
                None => break None,
            }
        };
        let tokens = Tokens((self.tokens.len() - before) as u32);
        let took = self.constrained.as_mut().map_or(Duration::ZERO, |constrained| constrained.take_took());
        let (masks, waited) = (Nanos::from(took), std::mem::take(&mut self.times.waited));
        let begun = self.times.clock.now();
        self.learn(before, &path, rows.likeliest);
        let offer = match finished {
            None if !self.asks_model() => self.draft(),
            // It drafts when the model was asked.
            _ => Offer::NONE,
        };
        let took = self.times.clock.now() - begun;
        if let Some(speculation) = &mut self.speculation {
            speculation.took(Duration::from_nanos(took.0));
        }
        let accepted = if drafted == 0 { Accepted::All } else { Accepted::Path(path) };
        (Generated { tokens, finished, offer, masks, waited, ..Generated::one(request, None) }, accepted)
    }

    /// All of its prompt was read, and nothing is generated. Returns why it ends.
    fn was_read(&mut self) -> FinishReason {
        self.times.first_token.get_or_insert_with(|| self.times.clock.now());
        if let Some(encoding) = &mut self.encoding {
            for result in std::mem::take(&mut encoding.results) {
                self.outbox.send(GenerationEvent::Embedding(result));
            }
            return FinishReason::Stop;
        }
        let Some(pooled) = &self.pooled else { return FinishReason::Length };
        self.outbox.send(GenerationEvent::Embedding(pooled.embedding()));
        FinishReason::Stop
    }

    /// Takes what its texts came to, after all nodes, if it is the encoder's.
    pub(crate) fn encode(&mut self, backend: &B, pass: &B::Pass) {
        if let Some(encoding) = &mut self.encoding {
            encoding.results = backend.encoded(pass);
        }
    }

    /// Takes note of where some rows' experts were computed, and what their pass had to read.
    pub(crate) fn routed(&mut self, fates: FateCounts, reads: ExpertReads) {
        self.experts += fates;
        self.expert_reads += reads;
    }

    /// Rows of its prompt were computed, up to this position.
    pub(crate) fn has_read(&self, read: Tokens) {
        if self.progress == Progress::Told {
            self.outbox.send(GenerationEvent::Reading { read, cached: self.cached });
        }
    }

    /// Takes in rows of its prompt, which are `rows` of a pass after all nodes, if its embedding is wanted.
    pub(crate) fn pool(&mut self, backend: &B, pass: &B::Pass, member: &Member, rows: Range<usize>) {
        if let Some(pooled) = &mut self.pooled {
            pooled.add(backend, pass, member.rows.start.as_usize(), rows);
        }
    }

    /// How many of its rows of a pass yield a token: none where its prompt is only read.
    pub(crate) fn token_rows(&self, member: &Member) -> usize {
        if self.is_read_only() { 0 } else { member.token_rows().as_usize() }
    }

    /// What is to be known of the rows that yield its tokens. Log probabilities are shares of all tokens, and a mask may rule out
    /// the likeliest.
    pub(crate) fn wanted(&self) -> Wanted {
        if self.logprobs.is_some() || self.constrained.is_some() { Wanted::All } else { self.sampler.wanted() }
    }

    /// Those rows of a pass, its own being `rows` of it, that are read behind the last layer: those that yield tokens, and of a
    /// prompt those that are scored, or all if it is pooled or calibrates with the whole head.
    pub(crate) fn head_rows(&self, member: &Member, rows: Range<usize>) -> Range<usize> {
        let is_full = matches!(self.vocabulary, Some(Vocabulary::Full));
        if member.stage == Stage::Prefill && (self.pooled.is_some() || is_full) {
            return rows;
        }
        let yielding = rows.end - self.token_rows(member)..rows.end;
        match self.scored_rows(member, rows).filter(|scored| !scored.is_empty()) {
            None => yielding,
            Some(scored) if yielding.is_empty() => scored,
            Some(scored) => scored.start.min(yielding.start)..yielding.end,
        }
    }

    /// Those rows of a pass, its own being `rows` of it, that say how likely its prompt's next tokens are, if that is wanted.
    pub(crate) fn scored_rows(&self, member: &Member, rows: Range<usize>) -> Option<Range<usize>> {
        let first = member.rows.start.as_usize();
        let positions = self.scores.as_ref()?.wanted(first..member.rows.end.as_usize(), self.prompt_len);
        Some(rows.start + (positions.start - first)..rows.start + (positions.end - first))
    }

    /// The prompt's tokens that the next so many rows speak of, and how many alternatives are told with each.
    pub(crate) fn to_score(&self, rows: usize) -> (&[TokenId], u8) {
        let Some(scores) = &self.scores else { return (&[], 0) };
        (&self.tokens[scores.next()..][..rows], scores.alternatives())
    }

    /// Tells how likely the prompt's next tokens are.
    pub(crate) fn tell_scores(&mut self, logprobs: Vec<TokenLogprobs>) {
        let told = self.scores.as_mut().map(|scores| scores.tell(&self.tokens, logprobs)).unwrap_or_default();
        if !told.is_empty() {
            self.outbox.send(GenerationEvent::Prompt(told));
        }
    }

    /// Calibrates its drafts from rows of its prompt, which are `rows` of a pass after all nodes.
    pub(crate) fn calibrate(
        &mut self,
        backend: &B,
        pass: &mut B::Pass,
        member: &Member,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) {
        let (Some(speculation), Some(vocabulary)) = (&mut self.speculation, &self.vocabulary) else { return };
        let begun = self.times.clock.now();
        let successors = vocabulary.successors(backend, pass, rows, crew);
        for (likeliest, at) in successors.iter().zip(member.rows.start.as_usize()..) {
            let before = self.tokens[at.saturating_sub(1)];
            speculation.calibrate([before, self.tokens[at]], likeliest);
        }
        let took = self.times.clock.now() - begun;
        speculation.calibration_took(Duration::from_nanos(took.0));
        if member.yields == Yields::Token {
            self.vocabulary = None;
        }
    }

    /// Chooses the next token and sends it. Returns why it is the last, if it is.
    fn choose(
        &mut self,
        backend: &B,
        rows: &mut Yielding<'_>,
        row: usize,
        scratch: &mut Scratch,
    ) -> Option<FinishReason> {
        let vocabulary = backend.shape().vocabulary;
        let logits = rows.logits.as_deref_mut().map(|logits| &mut logits[row * vocabulary..][..vocabulary]);
        // The sampler changes the logits, but the model's own are reported.
        let reported = logits.as_deref().zip(self.logprobs).map(|(logits, wanted)| (logits.to_vec(), wanted));
        let likeliest = &rows.likeliest[row];
        let asked = self.constrained.is_some().then(|| self.times.clock.now());
        let mask = self.constrained.as_mut().map(|constrained| constrained.mask(row));
        if let Some(asked) = asked {
            self.times.waited += self.times.clock.now() - asked;
        }
        let is_stuck = matches!(mask, Some(None));
        let may_come = |token: &TokenId| mask.is_none_or(|mask| mask.is_some_and(|mask| mask.allows(*token)));
        let closing = self.thought.as_ref().and_then(|thought| thought.closing()).filter(may_come);
        let token = match (closing, logits, mask) {
            (Some(token), ..) => self.sampler.given(token),
            (None, None, _) => self.sampler.choose_of_best(likeliest, scratch),
            (None, Some(logits), Some(Some(mask))) => self.sampler.choose_among(mask, logits, likeliest, scratch),
            // Of an answer that nothing can follow, the token is the last one's place, and has no text. The answer failed.
            (None, Some(logits), None | Some(None)) => self.sampler.choose(logits, likeliest.first().copied(), scratch),
        };
        let logprobs = reported.map(|(logits, alternatives)| logprobs(&logits, token, alternatives, scratch));
        self.tokens.push(token);
        self.times.first_token.get_or_insert_with(|| self.times.clock.now());

        let held = self.constrained.as_mut().map_or(Held::GoesOn, |constrained| constrained.chosen(token));
        let ends_turn = is_stuck || (self.ending == Ending::AtEndOfTurn && backend.ends_turn(token));
        let new = match backend.special_name(token).filter(|_| self.marks.contains(&token)) {
            _ if ends_turn => String::new(),
            Some(mark) => backend.finish_text(&mut self.text) + mark,
            None => backend.push_text(&mut self.text, token),
        };
        if let Some(thought) = &mut self.thought {
            thought.goes_on(token, &new);
        }
        let (text, stopped) = match self.stops.push(new) {
            Matched::Nothing(text) => (text, false),
            Matched::Stop(text) => (text, true),
        };
        self.outbox.send(GenerationEvent::Token { token, text, logprobs });
        if stopped {
            return Some(FinishReason::Stop);
        }
        // What ends a turn may come only where the answer is complete.
        if is_stuck || (held == Held::Lost && !backend.ends_turn(token)) {
            self.failure = Some(EngineError::FormLost);
        }
        let reason = match () {
            () if ends_turn || held != Held::GoesOn => FinishReason::Stop,
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
            drafts: self.speculation.as_ref().map(|speculation| speculation.counts()).unwrap_or_default(),
            forced: Tokens(self.constrained.as_ref().map_or(0, |constrained| constrained.forced_count())),
            experts: self.experts,
            expert_reads: self.expert_reads,
            stopped_by: self.stops.ended_by(),
            // Without a token there was no first one; the whole time was waiting.
            time_to_first_token: self.times.first_token.map_or(total, since),
            total,
        }
    }
}
