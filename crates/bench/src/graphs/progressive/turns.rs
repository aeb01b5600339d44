//! What all methods took on one prompt, turn by turn, and the lines that come of it.

use super::answer::Answer;
use super::methods::Method;
use crate::graphs::line::ProgressiveLine;
use crate::samples::median;
use duet_types::{Nanos, Tokens};

/// All methods' answers; each has one a turn.
pub(super) struct Turns {
    pub(super) methods: Vec<Measured>,
}

/// A method's answers.
pub(super) struct Measured {
    pub(super) method: Method,
    pub(super) predicted_ready: Nanos,
    pub(super) answers: Vec<Answer>,
}

impl Turns {
    /// No turn yet.
    pub(super) fn of(methods: &[Method]) -> Self {
        let none = |&method: &Method| Measured { method, predicted_ready: Nanos::ZERO, answers: Vec::new() };
        Self { methods: methods.iter().map(none).collect() }
    }

    /// A line for each method; none if there was no turn.
    pub(super) fn lines(&self, prompt: Tokens) -> Option<Vec<ProgressiveLine>> {
        let reference = self.methods.first()?.answers.first()?;
        let both = self.methods.iter().find(|measured| measured.method == Method::Both);
        self.methods.iter().map(|measured| measured.line(prompt, reference, both)).collect()
    }
}

impl Measured {
    fn line(&self, prompt: Tokens, reference: &Answer, both: Option<&Self>) -> Option<ProgressiveLine> {
        let Self { method, predicted_ready, answers } = self;
        let millis =
            |read: fn(&Answer) -> Nanos| median(answers.iter().map(|answer| read(answer).as_millis_f64()).collect());
        Some(ProgressiveLine {
            setting: "progressive",
            method: method.to_string(),
            prompt: prompt.0,
            output: reference.tokens.len(),
            n: answers.len(),
            prefill_ms: millis(|answer| answer.prefill)?,
            ready_ms: millis(|answer| answer.ready)?,
            predicted_ready_ms: predicted_ready.as_millis_f64(),
            ttft_ms: millis(|answer| answer.first)?,
            total_ms: millis(|answer| answer.total)?,
            wait_ms: millis(|answer| answer.waited)?,
            switch_share: both.and_then(|both| self.switch_share(both)),
            initial_load_ms: millis(|answer| answer.initial)?,
            peak_graph_bytes: answers.iter().map(|answer| answer.peak.0).max()?,
            same_tokens: answers.iter().map(|answer| answer.same_tokens(reference)).min()?,
            logits_off: answers.iter().map(|answer| answer.logits_off(reference)).fold(0.0, f64::max),
        })
    }

    /// Compares answers of the same turn: the machine was as fast for both.
    fn switch_share(&self, both: &Self) -> Option<f64> {
        let share = |(own, both): (&Answer, &Answer)| {
            (own.ready.as_secs_f64() - both.ready.as_secs_f64()) / own.total.as_secs_f64()
        };
        let shares = self.answers.iter().zip(&both.answers).map(share).collect();
        self.method.exchanges().then(|| median(shares)).flatten()
    }
}
