//! A recorded run as a workload: who came, with what, and what they got; all of it from the event log.
//!
//! A client's answer is as long as what was generated for it. An answer that was cut short by its client would have gone
//! on, nobody knows for how long: in a replay it is cut at the same time. Drafts are right as often as they were, on
//! average over each answer. Whose KV a prompt continued, and how much of it, is what was found when it was restored. What
//! the log does not hold is not guessed: prompts' texts, and with them what else a prompt might have shared; the time a
//! request spends before it is submitted, in HTTP and in the tokenizer.
//!
//! **Invariant:** whatever a file holds, reading it ends with a record that can be simulated or with an error that names
//! the line.

mod check;
mod in_flight;
mod produced;

use crate::client::{Client, Continues};
use crate::counters::Counters;
use crate::scenario::Scenario;
use check::{check_config, check_kernel, check_request};
use duet_driver::{Header, Line, LogError, LogReader, Observer, Probe};
use duet_scheduler::{Command, End, Event, Outcome, Source};
use duet_types::{Instant, RequestId, Stage, Tokens};
use produced::Produced;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

/// What a log tells.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The policy, the machine's profile and the model.
    pub header: Header,
    /// Who came, by request.
    pub clients: Vec<Client>,
    /// What became of them.
    pub counters: Counters,
    /// What the machine was found to give.
    pub probes: Vec<Probed>,
    /// The last line's time.
    pub ended: Instant,
}

/// A probe in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// When it was taken.
    pub at: Instant,
    /// What it found.
    pub probe: Probe,
    /// Beside what.
    pub beside: Beside,
}

/// What the lanes did while a probe was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing: the weights may have left the caches, and cores may sleep.
    Nothing,
    /// A prompt was read.
    Prefill,
    /// Tokens were generated, which reads the weights again and again.
    Decode,
}

/// A log that is being read.
struct Reading {
    recorded: Recorded,
    produced: Vec<Produced>,
    cancelled: BTreeMap<RequestId, Instant>,
    released: BTreeMap<RequestId, (Instant, End)>,
    restored: BTreeSet<RequestId>,
}

impl Recorded {
    /// Reads a log, a line at a time. One that ends in the middle is read as far as it goes.
    ///
    /// # Errors
    /// [`LogError`] with the line.
    pub fn read(log: impl BufRead) -> Result<Self, LogError> {
        let (header, mut reader) = LogReader::open(log)?;
        check_config(&header.config).map_err(|error| reader.error(error))?;
        let mut reading = Reading::new(header);
        let mut now = Instant::default();
        while let Some(line) = reader.next_line()? {
            let read = match line {
                Line::Event(at, event) => {
                    now = at;
                    reading.event(at, &event)
                }
                Line::Command(command) => reading.command(now, &command),
                Line::Probe(at, probe) => {
                    reading.probe(at, probe);
                    Ok(())
                }
            };
            read.map_err(|error| reader.error(error))?;
        }
        Ok(reading.end(now))
    }

    /// The run as a scenario, on a machine that is as its profile says.
    #[must_use]
    pub fn scenario(&self) -> Scenario {
        let scenario = Scenario::new(self.header.policy, self.header.config.clone());
        Scenario { clients: self.clients.clone(), ..scenario }
    }
}

impl Reading {
    fn new(header: Header) -> Self {
        let recorded = Recorded {
            header,
            clients: Vec::new(),
            counters: Counters::default(),
            probes: Vec::new(),
            ended: Instant::default(),
        };
        let (produced, cancelled) = (Vec::new(), BTreeMap::new());
        Self { recorded, produced, cancelled, released: BTreeMap::new(), restored: BTreeSet::new() }
    }

    fn event(&mut self, now: Instant, event: &Event) -> Result<(), String> {
        match event {
            Event::Submitted(request) => self.submitted(now, request)?,
            &Event::Restored { request, cached, source } => self.restored(request, cached, source)?,
            Event::KernelDone { kernel, outcome } => {
                if !self.recorded.counters.kernels.is_running(*kernel) {
                    return Err(format!("kernel {kernel} ends and was not launched"));
                }
                if let Outcome::Tokens(tokens) = outcome {
                    for token in tokens {
                        let produced = self.produced_by(token.request)?;
                        if token.tokens > TOKENS_MAX.saturating_sub(produced.tokens) {
                            return Err(format!(
                                "request {} has too many tokens: {} more",
                                token.request, token.tokens
                            ));
                        }
                        produced.brought(token);
                    }
                }
            }
            // Servers also give up what has ended: that must not cut short a simulation that takes longer.
            Event::Cancelled(request) if !self.released.contains_key(request) => {
                self.cancelled.entry(*request).or_insert(now);
            }
            _ => {}
        }
        self.recorded.counters.event(now, event);
        Ok(())
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), String> {
        match command {
            Command::Launch { lanes, kernel, .. } => {
                check_kernel(&self.recorded.header.config, *lanes, kernel)?;
                for member in kernel.members.iter().filter(|member| member.stage == Stage::Verify) {
                    let drafted = member.token_rows().saturating_sub(Tokens(1));
                    self.produced_by(member.request)?.verifies(drafted);
                }
            }
            Command::Release { request, end } => {
                self.produced_by(*request)?;
                self.released.insert(*request, (now, *end));
            }
            _ => {}
        }
        self.recorded.counters.command(now, command);
        Ok(())
    }

    fn probe(&mut self, at: Instant, probe: Probe) {
        let beside = match self.recorded.counters.kernels.running_stage() {
            None => Beside::Nothing,
            Some(Stage::Prefill) => Beside::Prefill,
            Some(Stage::Decode | Stage::Verify) => Beside::Decode,
        };
        self.recorded.probes.push(Probed { at, probe, beside });
    }

    fn submitted(&mut self, now: Instant, request: &duet_scheduler::Request) -> Result<(), String> {
        let next = self.recorded.clients.len() as u64;
        if request.id.0 != next {
            return Err(format!("request {} is submitted where request {next} should be", request.id));
        }
        check_request(&self.recorded.header.config, request)?;
        let name = request.id.to_string();
        let net = request.net;
        let client = Client { name, arrives: now, net, ..Client::new(request.class, request.prompt.0, 1) };
        self.recorded.clients.push(client);
        self.produced.push(Produced::default());
        Ok(())
    }

    fn restored(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) -> Result<(), String> {
        self.produced_by(request)?;
        // Only the first time: later it is its own KV that comes back.
        if !self.restored.insert(request) {
            return Ok(());
        }
        let Some(Source::TakenOver(of) | Source::Forked(of)) = source else { return Ok(()) };
        if !self.recorded.clients[request.0 as usize].net.is_decoder() {
            return Err(format!("request {request} is for the encoder and continues request {of}"));
        }
        // It may have come later, while this one waited, but it has ended.
        if !self.released.contains_key(&of) {
            return Err(format!("request {request} continues request {of}, which has not ended"));
        }
        let continues = Continues { client: of.0 as usize, shared: cached };
        self.recorded.clients[request.0 as usize].continues = Some(continues);
        Ok(())
    }

    fn produced_by(&mut self, request: RequestId) -> Result<&mut Produced, String> {
        let index = usize::try_from(request.0).unwrap_or(usize::MAX);
        self.produced.get_mut(index).ok_or_else(|| format!("request {request} was not submitted"))
    }

    /// What is known at the end of the log. Who is not answered then has gone.
    fn end(mut self, ended: Instant) -> Recorded {
        for (index, client) in self.recorded.clients.iter_mut().enumerate() {
            let request = RequestId(index as u64);
            client.cancelled = self.cancelled.get(&request).copied();
            let produced = self.produced[index];
            // What an encoder makes of a text is one thing, however it ended, and whatever a file says of its tokens.
            if !client.net.is_decoder() {
                let gone = !matches!(self.released.get(&request), Some((_, End::Finished(_))));
                let at = self.released.get(&request).map_or(ended, |(at, _)| *at);
                client.cancelled = client.cancelled.or(gone.then_some(at));
                continue;
            }
            (client.drafts, client.masks) = (produced.drafts(), produced.masks());
            client.output = match self.released.get(&request) {
                Some((_, End::Finished(reason))) if *reason != duet_types::FinishReason::Cancelled => produced.tokens,
                released => {
                    let gone = released.map_or(ended, |(at, _)| *at);
                    client.cancelled = client.cancelled.or(Some(gone));
                    TOKENS_MAX
                }
            };
        }
        self.recorded.ended = ended;
        self.recorded
    }
}

/// No model's context is longer.
pub(crate) const TOKENS_MAX: Tokens = Tokens(1 << 24);

#[cfg(test)]
mod tests;
