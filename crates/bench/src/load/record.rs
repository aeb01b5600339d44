//! What is kept of one request.

use super::job::{Answer, Job};
use duet_types::{Class, Tokens};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// One request as its client saw it. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) class: Class,
    /// Its place in its stream.
    pub(crate) index: usize,
    /// When it was sent, since the slice's window opened; negative if before.
    pub(crate) arrival: f64,
    /// From sending to the end.
    pub(crate) latency: f64,
    /// From sending to the first text.
    pub(crate) ttft: Option<f64>,
    /// The longest time between two tokens.
    pub(crate) gap_max: Option<f64>,
    pub(crate) prompt: Tokens,
    /// Prompt tokens that were not computed; absent where the server does not say.
    pub(crate) cached: Option<Tokens>,
    pub(crate) output: Tokens,
    /// Tokens that came while the window was open.
    pub(crate) in_window: u64,
    /// Of the answer's text: equal texts have equal hashes.
    pub(crate) text_hash: u64,
    pub(crate) fate: Fate,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Whole.
    Ended,
    /// The slice was over before it was, and somebody waited for it.
    Unfinished,
    /// One of those that are always under way: the slice was over, and nothing is lost.
    Cut,
    /// With an error.
    Failed(String),
}

/// When a slice counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) opens: Instant,
    pub(crate) closes: Instant,
}

impl Record {
    pub(crate) fn new(job: &Job, sent: Instant, answer: &Answer, fate: Fate, window: Window) -> Self {
        let end = answer.end.unwrap_or_else(Instant::now);
        let mut hasher = DefaultHasher::new();
        answer.text.hash(&mut hasher);
        let within = |at: &&Instant| **at >= window.opens && **at < window.closes;
        Self {
            class: job.class,
            index: job.index,
            arrival: signed(window.opens, sent),
            latency: (end - sent).as_secs_f64(),
            ttft: answer.first_text.map(|first| (first - sent).as_secs_f64()),
            gap_max: answer.gap_max().map(|gap| gap.as_secs_f64()),
            prompt: answer.counts.map(|counts| counts.prompt).unwrap_or_default(),
            cached: answer.counts.and_then(|counts| counts.cached),
            output: answer.counts.map_or(Tokens(answer.tokens.len() as u32), |counts| counts.output),
            in_window: answer.tokens.iter().filter(within).count() as u64,
            text_hash: hasher.finish(),
            fate,
        }
    }

    /// When it ended, since the window opened.
    pub(crate) fn end(&self) -> f64 {
        self.arrival + self.latency
    }

    /// Whether it is one to count: of this class, sent while the window was open, and whole.
    pub(crate) fn counts_as(&self, class: Class) -> bool {
        self.class == class && self.arrival >= 0.0 && self.fate == Fate::Ended
    }
}

/// Seconds from `origin` to `at`, which may be earlier.
fn signed(origin: Instant, at: Instant) -> f64 {
    match at.checked_duration_since(origin) {
        Some(after) => after.as_secs_f64(),
        None => -(origin - at).as_secs_f64(),
    }
}
