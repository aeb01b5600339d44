//! The figures of a run that the report speaks of.

use duet_scheduler::policy::PolicyName;
use duet_sim::{ClassFigures, Figures};

/// Mean latency of reactive requests, in seconds.
pub(crate) fn reactive_mean(figures: &Figures) -> Option<f64> {
    figures.reactive.mean_s
}

/// Their 90th percentile, in seconds.
pub(crate) fn reactive_p90(figures: &Figures) -> Option<f64> {
    figures.reactive.p90_s
}

/// Their mean time to the first token, in seconds.
pub(crate) fn reactive_ttft(figures: &Figures) -> Option<f64> {
    figures.reactive.ttft_mean_s
}

/// Mean latency of proactive requests, in seconds.
pub(crate) fn proactive_mean(figures: &Figures) -> Option<f64> {
    figures.proactive.mean_s
}

/// Latency of proactive requests for each token of prompt and answer, in seconds, averaged over requests.
pub(crate) fn proactive_norm(figures: &Figures) -> Option<f64> {
    figures.proactive.norm_ms.map(|ms| ms / 1e3)
}

/// Tokens of prompts and answers that were served in a second, until the last request ended.
pub(crate) fn served(figures: &Figures) -> Option<f64> {
    (figures.lasted.0 > 0).then(|| figures.tokens as f64 / figures.lasted.as_secs_f64())
}

/// Joules for each token of prompts and answers.
pub(crate) fn joules(figures: &Figures) -> Option<f64> {
    figures.joules_per_token()
}

/// Seconds for which the system's monitor shows the iGPU busy: prefill counts whole, decode 46 %.
pub(crate) fn igpu_seconds(figures: &Figures) -> Option<f64> {
    figures.lane("igpu").map(|lane| lane.monitored_s)
}

/// Seconds from the end of the arrivals to the end of the last request.
pub(crate) fn drain(figures: &Figures) -> Option<f64> {
    Some(figures.drain.as_secs_f64())
}

/// Share of the time in which requests came for which the lane that a policy decodes on was busy, in per cent.
pub(crate) fn utilisation(policy: PolicyName) -> fn(&Figures) -> Option<f64> {
    match policy {
        PolicyName::CpuBatching => |figures| busy(figures, "cpu"),
        _ => |figures| busy(figures, "igpu"),
    }
}

/// The same of the NPU.
pub(crate) fn npu_busy(figures: &Figures) -> Option<f64> {
    busy(figures, "npu")
}

/// Pages of keys and values that were written to disk.
pub(crate) fn spilled(figures: &Figures) -> Option<f64> {
    Some(figures.kept.spilled as f64)
}

/// Share of prompts' tokens that were found computed, in per cent.
pub(crate) fn reused(figures: &Figures) -> Option<f64> {
    (figures.prompts > 0).then(|| figures.kept.reused as f64 / figures.prompts as f64 * 100.0)
}

/// The longest that a reactive request waited for background work under way, in milliseconds.
pub(crate) fn longest_preemption(figures: &Figures) -> Option<f64> {
    figures.preempt.last().map(|wait| wait.as_millis_f64())
}

/// Where the time of a class went: active prefill, pending prefill, active decode, pending decode; mean seconds.
pub(crate) const PARTS: [&str; 4] = ["active prefill", "pending prefill", "active decode", "pending decode"];

/// One of [`PARTS`].
pub(crate) fn part(class: &ClassFigures, part: usize) -> Option<f64> {
    class.breakdown_s?.get(part).copied()
}

fn busy(figures: &Figures, lane: &str) -> Option<f64> {
    figures.lane(lane).map(|lane| lane.busy_in_window * 100.0)
}
