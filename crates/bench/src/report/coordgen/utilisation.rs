//! What verify passes are used for: valid, wasted and underutilised rows. (sd.npu §3.2, §4.4)

use super::acceptance::accepted;
use super::paper_task::PaperTask;
use super::study::Study;
use crate::plot::{Bar, bars};
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Plot, Section};
use crate::traces::{RequestTrace, TaskTrace};
use duet_speculate::{Method, Utilisation};

/// Rows that saturate the paper's NPU. (sd.npu §5.1)
pub(super) const SATURATING: u64 = 32;

/// A part of the rows, and the paper's share of it for SAM, in per cent.
type Part = (&'static str, fn(&Utilisation) -> u64, f64);
const PARTS: [Part; 3] = [
    ("valid", |rows| rows.valid, 3.0),
    ("wasted", |rows| rows.wasted, 22.0),
    ("underutilised", |rows| rows.underutilised, 75.0),
];
/// The paper's share of wasted and underutilised computation that becomes valid, in per cent.
const SAVED: f64 = 70.5;

const SHOWN: [(&str, Method); 3] = [("SAM", Method::Sam), ("CoordGen", Method::CoordGen), ("duet", Method::Duet)];

pub(super) fn section(study: &Study) -> Section {
    let mut section = Section {
        id: "utilisation",
        title: "What verify passes are used for (sd.npu §3.2, §4.4)",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    for trace in &study.traces {
        let shares = SHOWN.iter().flat_map(|shown| PARTS.iter().map(move |part| share_row(study, trace, shown, part)));
        section.rows.extend(shares);
        section.rows.extend(SHOWN[1..].iter().map(|shown| saved_row(study, trace, shown)));
        section.plots.extend(plot(trace));
    }
    section
}

const PROSE: [&str; 3] = [
    "Of the 32 rows that a pass on the NPU's graph has, those that yielded a token are valid, those that were drafted and \
     rejected wasted, and those that were not drafted underutilised. The paper's shares are of SAM; it does not say on which \
     task, and they stand beside summary.",
    "The paper says that 70.5 % of what is wasted and underutilised becomes valid (sd.npu §1) and that 70.5 % of token \
     computation is saved (§4.4). Here it is the share of SAM's rows without a token that is not computed any more, for the \
     same answers: with constant passes that follows from the tokens a verification alone. The paper's own tokens of Table 4 \
     (3.60 and 4.21, Qwen2.5-1.5B on summary) come to 16 % by the same reckoning, so its figure is of something else.",
    "A draft that is filled has no row underutilised and many wasted: on an NPU both cost the same.",
];

fn used(requests: &[RequestTrace], method: Method) -> Utilisation {
    let mut all = Utilisation::default();
    for step in requests.iter().flat_map(|request| &request.by(method).steps) {
        all += Utilisation::of(u64::from(step.tokens().0), u64::from(step.rows().0), SATURATING);
    }
    all
}

fn share_row(study: &Study, trace: &TaskTrace, (name, method): &(&str, Method), (part, of, paper): &Part) -> Row {
    let share = |requests: &[RequestTrace]| {
        let used = used(requests, *method);
        (used.total() > 0).then(|| of(&used) as f64 / used.total() as f64 * 100.0)
    };
    let row = Row::new("sd.npu §3.2", study.setting(&trace.title()), format!("{part} rows, {name}"), Unit::Percent)
        .computed(trace.pooled(share), trace.requests.len());
    let is_told = *method == Method::Sam && PaperTask::of(&trace.task) == Some(PaperTask::Summary);
    if is_told { row.paper(Paper::Is(*paper)) } else { row }
}

/// Rows of SAM's passes without a token that are not computed any more.
fn saved_row(study: &Study, trace: &TaskTrace, (name, method): &(&str, Method)) -> Row {
    // Rows without a token, for each token.
    let idle = |requests: &[RequestTrace], method| Some(SATURATING as f64 / accepted(requests, method)? - 1.0);
    let saved = |requests: &[RequestTrace]| {
        let theirs = idle(requests, Method::Sam).filter(|&rows| rows > 0.0)?;
        Some((1.0 - idle(requests, *method)? / theirs) * 100.0)
    };
    let row = Row::new(
        "sd.npu §4.4",
        study.setting(&trace.title()),
        format!("rows without a token saved, {name}"),
        Unit::Percent,
    )
    .computed(trace.pooled(saved), trace.requests.len());
    if *method == Method::CoordGen { row.paper(Paper::Is(SAVED)) } else { row }
}

fn plot(trace: &TaskTrace) -> Option<Plot> {
    let bar = |(name, method): &(&str, Method)| {
        let used = used(&trace.requests, *method);
        let parts = PARTS.iter().map(|(_, of, _)| of(&used) as f64 / used.total().max(1) as f64 * 100.0).collect();
        Bar { name: (*name).to_owned(), parts }
    };
    let shown: Vec<Bar> = SHOWN.iter().map(bar).collect();
    Plot::of(
        format!("{}: what the rows of verify passes are", trace.title()),
        bars("% of rows", &PARTS.map(|part| part.0), &shown),
    )
}
