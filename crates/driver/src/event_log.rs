//! The event log: what happened, and what the scheduler made of it, one JSON object a line.
//!
//! The scheduler is a function of its configuration and its events, so a log of them is enough to repeat every decision
//! of a run, without the lanes, the model or the time it took. The first line is the configuration and the policy; an
//! event's line is followed by one line for each command that it led to, so that a replay can be compared with them.
//! Between them lie probes of the machine's speed, which decide nothing and tell a simulator how fast the lanes were.
//!
//! A killed process leaves a log that ends early: whole lines, the last one maybe cut, which is read up to there. The
//! first line is written at once, what follows at least every second in which something happens.

use crate::log_header::Header;
use crate::log_reader::{Line, LogError, LogReader};
use crate::observer::Observer;
use crate::probe::Probe;
use duet_scheduler::{Command, Event, Scheduler};
use duet_types::{Instant, Nanos};
use serde::Serialize;
use std::io::{BufRead, Write};

/// Writes a log while it happens. A write error ends the log, never the run.
#[derive(Debug)]
pub struct EventLog<W> {
    out: Option<W>,
    line: String,
    flushed: Instant,
}

/// A line that is written.
#[derive(Debug, Serialize)]
enum Entry<'a> {
    Event(u64, &'a Event),
    Command(&'a Command),
    Probe(u64, &'a Probe),
}

/// What a replay found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Events handed over.
    pub events: usize,
    /// Commands that were the same.
    pub commands: usize,
}

/// Why a log could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] LogError),
    /// The scheduler decided otherwise.
    #[error("line {line}: the log has {logged}, but the scheduler {decided}")]
    Differs {
        /// From 1.
        line: usize,
        /// The command in the log.
        logged: String,
        /// What was decided.
        decided: String,
    },
}

impl<W: Write> EventLog<W> {
    /// Begins a log.
    ///
    /// # Errors
    /// If its first line cannot be written.
    pub fn begin(mut out: W, header: &Header) -> std::io::Result<Self> {
        let line = serde_json::to_string(header).map_err(std::io::Error::other)?;
        writeln!(out, "{line}")?;
        out.flush()?;
        Ok(Self { out: Some(out), line: String::new(), flushed: Instant::default() })
    }

    fn write(&mut self, entry: &Entry<'_>) {
        let Some(out) = &mut self.out else { return };
        self.line.clear();
        let Ok(text) = serde_json::to_string(entry) else { return };
        self.line.push_str(&text);
        self.line.push('\n');
        if out.write_all(self.line.as_bytes()).is_err() {
            self.out = None;
        }
    }

    /// Whether everything so far was written.
    pub fn is_whole(&self) -> bool {
        self.out.is_some()
    }
}

impl<W: Write> Observer for EventLog<W> {
    fn event(&mut self, now: Instant, event: &Event) {
        self.write(&Entry::Event(now.0, event));
        if now - self.flushed >= FLUSH_INTERVAL {
            self.flushed = now;
            self.out = self.out.take().and_then(|mut out| out.flush().is_ok().then_some(out));
        }
    }

    fn command(&mut self, _: Instant, command: &Command) {
        self.write(&Entry::Command(command));
    }

    fn probe(&mut self, now: Instant, probe: &Probe) {
        self.write(&Entry::Probe(now.0, probe));
    }
}

/// A process that is killed loses this much, if what it writes to is buffered.
pub(crate) const FLUSH_INTERVAL: Nanos = Nanos(1_000_000_000);

/// Hands the events of a log to a new scheduler and compares its commands with those of the log. A log that ends in the
/// middle is replayed as far as it goes.
///
/// # Errors
/// [`ReplayError`] with the line.
pub fn replay(log: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    let (header, mut reader) = LogReader::open(log)?;
    let mut scheduler = Scheduler::new(header.config, header.policy.policy());
    // As text: a command is compared, never carried out.
    while let Some(entry) = reader.next::<serde_json::Value>()? {
        let line = reader.line();
        match entry {
            Line::Event(now, event) => {
                if let Some(command) = scheduler.poll() {
                    let (logged, decided) = ("nothing more".to_owned(), format!("asks for {command:?}"));
                    return Err(ReplayError::Differs { line, logged, decided });
                }
                scheduler.handle(now, event);
                replayed.events += 1;
            }
            Line::Command(logged) => {
                compare(scheduler.poll().as_ref(), &logged, line)?;
                replayed.commands += 1;
            }
            Line::Probe(..) => {}
        }
    }
    Ok(replayed)
}

fn compare(decided: Option<&Command>, logged: &serde_json::Value, line: usize) -> Result<(), ReplayError> {
    let value = decided.map(|command| serde_json::to_value(command).unwrap_or_default());
    if value.as_ref() == Some(logged) {
        return Ok(());
    }
    let decided = value.map_or_else(|| "asks for nothing more".to_owned(), |value| format!("asks for {value}"));
    Err(ReplayError::Differs { line, logged: logged.to_string(), decided })
}
