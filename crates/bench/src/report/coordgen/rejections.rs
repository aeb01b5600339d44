//! Why drafts are rejected. (CoordGen §3.4, Table 2; sd.npu §4.4)

use super::paper_task::PaperTask;
use super::study::Study;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::Section;
use crate::traces::{RequestTrace, TaskTrace};
use duet_speculate::{Method, Rejection, Rejections};

pub(super) fn section(study: &Study) -> Section {
    let rows =
        |trace| Rejection::ALL.map(|case| share_row(study, trace, case)).into_iter().chain([reusable(study, trace)]);
    Section {
        id: "rejections",
        title: "Why drafts are rejected (Table 2)",
        prose: PROSE.map(str::to_owned).into(),
        rows: study.traces.iter().flat_map(rows).collect(),
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "Of SAM's drafts, each time that the best path of a draft was not what the model said. The paper labelled one use case of \
     summarising by hand. Here a case is what happened to the tokens: missing if within 8 tokens the answer goes on with the \
     first two rejected ones, synonym if with two others in a row of the rejected ones, redundant otherwise. Two words that \
     mean the same are not looked for, so that a misfit of any kind counts as a synonym if the draft goes on to be right.",
    "A rejected draft of a single token is redundant by this definition: there is nothing in it to go on with.",
];

/// The paper's share, in per cent.
fn paper(case: Rejection) -> f64 {
    match case {
        Rejection::Missing => 15.4,
        Rejection::Synonym => 23.1,
        Rejection::Redundant => 61.5,
    }
}

fn counted(requests: &[RequestTrace]) -> Rejections {
    let mut all = Rejections::default();
    requests.iter().for_each(|request| all += request.by(Method::Sam).rejections);
    all
}

fn share(requests: &[RequestTrace], count: impl Fn(&Rejections) -> u64) -> Option<f64> {
    let rejections = counted(requests);
    (rejections.total() > 0).then(|| count(&rejections) as f64 / rejections.total() as f64 * 100.0)
}

fn row(study: &Study, trace: &TaskTrace, quantity: String, count: impl Fn(&Rejections) -> u64) -> Row {
    let rejections = counted(&trace.requests).total();
    Row::new("Table 2", study.setting(&trace.title()), quantity, Unit::Percent)
        .computed(trace.pooled(|requests| share(requests, &count)), trace.requests.len())
        .note(format!("{rejections} rejections"))
}

fn share_row(study: &Study, trace: &TaskTrace, case: Rejection) -> Row {
    let name = match case {
        Rejection::Missing => "missing",
        Rejection::Synonym => "synonym",
        Rejection::Redundant => "redundant",
    };
    let row = row(study, trace, format!("rejections that are {name}"), |rejections| rejections.count(case));
    labelled(trace, row, paper(case))
}

/// What the paper's use case was.
fn labelled(trace: &TaskTrace, row: Row, paper: f64) -> Row {
    if PaperTask::of(&trace.task) == Some(PaperTask::Summary) { row.paper(Paper::Is(paper)) } else { row }
}

fn reusable(study: &Study, trace: &TaskTrace) -> Row {
    let row = row(study, trace, "rejections with something to be drafted again".to_owned(), |rejections| {
        rejections.count(Rejection::Missing) + rejections.count(Rejection::Synonym)
    });
    labelled(trace, row, paper(Rejection::Missing) + paper(Rejection::Synonym))
}
