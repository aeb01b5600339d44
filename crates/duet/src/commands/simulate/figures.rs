//! What a simulation came to, as an object and as a table.

use duet_engine::PolicyName;
use duet_sim::{ClassFigures, Figures, percentile};
use duet_types::Nanos;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// One policy on one machine. Everything but `wall_s` is the same whenever it is asked for.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    policy: String,
    profile: &'a str,
    model: &'a str,
    reactive: ClassLine,
    proactive: ClassLine,
    /// Share of the time, from the first arrivals to the last end, in which a unit ran anything. The CPU compiles graphs,
    /// unless it is what serves.
    utilisation: BTreeMap<String, f64>,
    /// Busy seconds as a system's monitor shows them: decode counts less than prefill.
    monitored_s: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    j_per_token: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preempt_ms: Option<PreemptLine>,
    /// Tokens of prompts and answers, a second of the whole time.
    tok_s: f64,
    /// Requests answered, a minute of the whole time.
    requests_per_minute: f64,
    /// From the end of the arrivals to the last end.
    drain_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_sha256: Option<String>,
    /// How long the simulation took.
    wall_s: f64,
}

#[derive(Debug, Serialize)]
struct ClassLine {
    n: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p90_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    norm_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_mean_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breakdown_s: Option<BreakdownLine>,
}

#[derive(Debug, Serialize)]
struct BreakdownLine {
    prefill_active: f64,
    prefill_pending: f64,
    decode_active: f64,
    decode_pending: f64,
}

#[derive(Debug, Serialize)]
struct PreemptLine {
    n: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

impl<'a> Line<'a> {
    pub(super) fn new(
        policy: PolicyName,
        profile: &'a str,
        model: &'a str,
        figures: &Figures,
        window: Nanos,
        wall: Duration,
    ) -> Self {
        let lasted = figures.lasted.max(window).as_secs_f64();
        let lanes = |figure: fn(&duet_sim::LaneFigures) -> f64| {
            figures.lanes.iter().map(|lane| (lane.name.clone(), figure(lane))).collect()
        };
        Self {
            policy: policy.to_string(),
            profile,
            model,
            reactive: ClassLine::new(&figures.reactive),
            proactive: ClassLine::new(&figures.proactive),
            utilisation: utilisation(figures),
            monitored_s: lanes(|lane| lane.monitored_s),
            j_per_token: figures.joules_per_token(),
            preempt_ms: preempt(&figures.preempt),
            tok_s: figures.tokens as f64 / lasted,
            requests_per_minute: (figures.reactive.n + figures.proactive.n) as f64 * 60.0 / lasted,
            drain_s: figures.drain.as_secs_f64(),
            tokens_sha256: None,
            wall_s: wall.as_secs_f64(),
        }
    }

    /// With the digest of all answers.
    pub(super) fn with_tokens(self, sha256: String) -> Self {
        Self { tokens_sha256: Some(sha256), ..self }
    }
}

impl ClassLine {
    fn new(figures: &ClassFigures) -> Self {
        Self {
            n: figures.n,
            unanswered: Some(figures.unanswered).filter(|&count| count > 0),
            mean_s: figures.mean_s,
            p90_s: figures.p90_s,
            p99_s: figures.p99_s,
            norm_ms: figures.norm_ms,
            ttft_mean_s: figures.ttft_mean_s,
            breakdown_s: figures.breakdown_s.map(|[prefill_active, prefill_pending, decode_active, decode_pending]| {
                BreakdownLine { prefill_active, prefill_pending, decode_active, decode_pending }
            }),
        }
    }
}

fn utilisation(figures: &Figures) -> BTreeMap<String, f64> {
    let mut units: BTreeMap<String, f64> = figures.lanes.iter().map(|lane| (lane.name.clone(), lane.busy)).collect();
    // A SoC has all three, whichever a policy uses; a measured machine has its lanes.
    if figures.joules.is_some() {
        let compiling = figures.compiled.as_secs_f64() / figures.lasted.as_secs_f64().max(1e-9);
        for (unit, idle) in [("npu", 0.0), ("igpu", 0.0), ("cpu", compiling)] {
            units.entry(unit.to_owned()).or_insert(idle);
        }
    }
    units
}

fn preempt(sorted: &[Nanos]) -> Option<PreemptLine> {
    let ms: Vec<f64> = sorted.iter().map(|nanos| nanos.as_millis_f64()).collect();
    let (p50, p99) = (percentile(&ms, 0.5)?, percentile(&ms, 0.99)?);
    Some(PreemptLine { n: ms.len(), p50, p99, max: *ms.last()? })
}

/// All policies, one below the other.
pub(super) fn page(lines: &[Line<'_>]) -> String {
    let mut page = String::new();
    if let Some(first) = lines.first() {
        let (reactive, proactive) = (first.reactive.n, first.proactive.n);
        page += &format!(
            "{} on {}: {reactive} reactive and {proactive} proactive requests\n\n",
            first.model, first.profile
        );
    }
    page += "                 reactive                       proactive\n";
    page += "policy            mean s    p90 s   ttft s       mean s    p90 s   preempt ms   J/token   busy\n";
    for line in lines {
        let number = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        let [mean, p90, ttft] = [line.reactive.mean_s, line.reactive.p90_s, line.reactive.ttft_mean_s].map(number);
        let [background, background_p90] = [line.proactive.mean_s, line.proactive.p90_s].map(number);
        let preempt = number(line.preempt_ms.as_ref().map(|preempt| preempt.max));
        let joules = line.j_per_token.map_or("-".to_owned(), |joules| format!("{joules:.3}"));
        let busy: Vec<String> =
            line.utilisation.iter().map(|(lane, share)| format!("{lane} {:.0} %", share * 100.0)).collect();
        page += &format!(
            "{:<14}  {mean:>8} {p90:>8} {ttft:>8}     {background:>8} {background_p90:>8}   {preempt:>10}   {joules:>7}   {}\n",
            line.policy,
            busy.join(", ")
        );
    }
    page
}
