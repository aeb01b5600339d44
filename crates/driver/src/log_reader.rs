//! Reading an event log, a line at a time.
//!
//! **Invariant:** times never go backwards: a log in which they do is refused, by line. The last line may be cut, as it
//! is when the program was killed; it is not read.

use crate::log_header::Header;
use crate::probe::Probe;
use duet_scheduler::{Command, Event};
use duet_types::Instant;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::BufRead;

/// A log of which some lines were read.
#[derive(Debug)]
pub struct LogReader<R> {
    log: R,
    line: usize,
    now: Instant,
    text: String,
}

/// A line below the header.
#[derive(Clone, Debug, PartialEq)]
pub enum Line<C = Command> {
    /// What the scheduler was told, and when.
    Event(Instant, Event),
    /// What it decided, at the time of the event above.
    Command(C),
    /// How fast the machine was.
    Probe(Instant, Probe),
}

/// Why a log could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct LogError {
    /// From 1.
    pub line: usize,
    /// What is wrong with the line.
    pub error: String,
}

/// A line as it is written.
#[derive(Debug, Deserialize)]
enum Written<C> {
    Event(u64, Event),
    Command(C),
    Probe(u64, Probe),
}

impl<R: BufRead> LogReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(log: R) -> Result<(Header, Self), LogError> {
        let mut reader = Self { log, line: 0, now: Instant::default(), text: String::new() };
        let header = reader.parsed()?;
        let header = header.ok_or_else(|| reader.error("this is no event log: its first line is not whole"))?;
        Ok((header, reader))
    }

    /// The next line; nothing at the end.
    ///
    /// # Errors
    /// [`LogError`] with the line.
    pub fn next_line(&mut self) -> Result<Option<Line>, LogError> {
        self.next()
    }

    /// The number of the line that was read last.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// An error in the line that was read last.
    pub fn error(&self, error: impl ToString) -> LogError {
        LogError { line: self.line, error: error.to_string() }
    }

    /// The next line, its command as the caller wants it.
    pub(crate) fn next<C: DeserializeOwned>(&mut self) -> Result<Option<Line<C>>, LogError> {
        let Some(written) = self.parsed()? else { return Ok(None) };
        match written {
            Written::Event(at, event) => Ok(Some(Line::Event(self.at(at)?, event))),
            Written::Command(command) => Ok(Some(Line::Command(command))),
            Written::Probe(at, probe) if probe.is_sane() => Ok(Some(Line::Probe(self.at(at)?, probe))),
            Written::Probe(..) => {
                Err(self.error("a probe has rates that are not above 0, or lanes that waited longer than they wanted"))
            }
        }
    }

    fn parsed<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LogError> {
        self.line += 1;
        self.text.clear();
        self.log.read_line(&mut self.text).map_err(|error| self.error(error))?;
        if !self.text.ends_with('\n') {
            return Ok(None);
        }
        serde_json::from_str(&self.text).map(Some).map_err(|error| self.error(error))
    }

    fn at(&mut self, at: u64) -> Result<Instant, LogError> {
        let at = Instant(at);
        if at < self.now {
            return Err(self.error(format!("time goes backwards, from {} ns to {} ns", self.now.0, at.0)));
        }
        self.now = at;
        Ok(at)
    }
}
