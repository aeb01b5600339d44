//! The figures of one method on one workload.

use super::answer::Answer;
use crate::samples::median;
use serde::Serialize;
use std::time::Duration;

/// One line of `duet bench speculate`. A figure that was not measured is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The file.
    pub workload: String,
    /// The method.
    pub method: String,
    /// Whether it drafts from answers to earlier prompts: `cold` or `warm`; absent if it never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<&'static str>,
    /// Answers.
    pub n: usize,
    /// Tokens of a pass after the prompt's.
    pub accept_len: f64,
    /// Rows of such a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<f64>,
    /// Of decode.
    pub ms_per_token: f64,
    /// Time of plain decode over that of this method, all answers together.
    pub speedup: f64,
    /// The same answer by answer: a tenth are below the first, half below the second, nine tenths below the third.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_p10_p50_p90: Option<[f64; 3]>,
    /// Answers of which next to nothing was accepted: at most [`RARELY`] tokens a pass.
    pub rarely_accepted_n: usize,
    /// Half of them were decoded faster than plain decode by this, or slower: what drafting costs where it never pays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rarely_accepted_speedup_p50: Option<f64>,
    /// Time of whole answers, prompt included, over plain decode's: below 1 if drafting cost more than it brought.
    pub request_speedup: f64,
    /// Drafting and learning, for each pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_us_per_step: Option<f64>,
    /// The draft model's time, for each pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_model_ms_per_step: Option<f64>,
    /// Calibration from the prompt, for each of its tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration_us_per_prompt_token: Option<f64>,
    /// Memory of the drafters at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_bytes: Option<u64>,
    /// Shares of the rows that saturate the machine: they brought a token,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid: Option<f64>,
    /// were rejected,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wasted: Option<f64>,
    /// or were not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub underutilised: Option<f64>,
    /// Whether all answers are those of plain decode; absent where none were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identical: Option<bool>,
    /// Whether its figures are computed from those of others.
    pub simulated: bool,
}

/// The answers of a method, and those of plain decode to the same prompts.
pub(super) struct Measured<'a> {
    pub(super) plain: &'a [Answer],
    pub(super) own: &'a [Answer],
}

/// All figures of a method.
pub(super) fn summary(workload: &str, method: &str, measured: &Measured<'_>) -> Line {
    let own = measured.own;
    let sum = |of: fn(&Answer) -> f64| own.iter().map(of).sum::<f64>();
    let (decoded, steps) = (sum(|answer| answer.decoded() as f64), sum(|answer| answer.steps() as f64));
    let rejected = sum(|answer| f64::from(answer.usage.drafts.rejected.0));
    let unused = sum(|answer| answer.unused_rows as f64);
    let prompt = sum(|answer| f64::from(answer.usage.prompt.0));
    let rows = decoded + rejected + unused;
    let micros = |of: fn(&Answer) -> Duration, per: f64| {
        Some(own.iter().map(of).sum::<Duration>().as_secs_f64() * 1e6 / per).filter(|micros| *micros > 0.0)
    };
    let rarely = measured.rarely_accepted();
    let plain = measured.plain.iter().map(|answer| &answer.tokens);
    let share = |count: f64| Some(count / rows).filter(|share| share.is_finite());
    Line {
        workload: workload.to_owned(),
        method: method.to_owned(),
        history: None,
        n: own.len(),
        accept_len: decoded / steps,
        rows: Some((decoded + rejected) / steps),
        ms_per_token: sum(Answer::decode_s) * 1e3 / decoded,
        speedup: ratio(measured, Answer::decode_s),
        speedup_p10_p50_p90: spread(measured),
        rarely_accepted_n: rarely.len(),
        rarely_accepted_speedup_p50: median(rarely),
        request_speedup: ratio(measured, |answer| answer.usage.total.as_secs_f64()),
        draft_us_per_step: micros(|answer| answer.usage.drafts.drafting, steps),
        draft_model_ms_per_step: micros(|answer| answer.usage.drafts.by_model, steps).map(|micros| micros / 1e3),
        calibration_us_per_prompt_token: micros(|answer| answer.usage.drafts.calibration, prompt),
        extra_bytes: own.iter().map(|answer| answer.usage.drafts.memory.0).max().filter(|&bytes| bytes > 0),
        valid: share(decoded),
        wasted: share(rejected),
        underutilised: share(unused),
        identical: Some(own.iter().map(|answer| &answer.tokens).eq(plain)),
        simulated: false,
    }
}

fn ratio(measured: &Measured<'_>, time: fn(&Answer) -> f64) -> f64 {
    let sum = |answers: &[Answer]| answers.iter().map(time).sum::<f64>();
    sum(measured.plain) / sum(measured.own)
}

impl Measured<'_> {
    /// Answers of both that are long enough to have a speed of their own.
    fn pairs(&self) -> impl Iterator<Item = (&Answer, &Answer)> {
        self.plain.iter().zip(self.own).filter(|(plain, _)| plain.decoded() >= DECODED_MIN)
    }

    /// How much faster the answers were of which next to nothing was accepted.
    fn rarely_accepted(&self) -> Vec<f64> {
        let rarely = self.pairs().filter(|(_, own)| own.decoded() as f64 <= RARELY * own.steps() as f64);
        rarely.map(|(plain, own)| plain.decode_s() / own.decode_s()).collect()
    }
}

fn spread(measured: &Measured<'_>) -> Option<[f64; 3]> {
    let mut ratios: Vec<f64> = measured.pairs().map(|(plain, own)| plain.decode_s() / own.decode_s()).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios.get(((ratios.len() as f64 * share) as usize).min(ratios.len().saturating_sub(1)));
    Some([*at(0.1)?, median(ratios.clone())?, *at(0.9)?])
}

/// Tokens of a pass where drafting brings next to nothing.
const RARELY: f64 = 1.05;

/// Shorter answers have no speed of their own.
const DECODED_MIN: u64 = 16;
