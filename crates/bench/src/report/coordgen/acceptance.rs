//! Tokens that a verification brings, by task and method. (CoordGen §4.5, Table 4)

use super::paper_task::PaperTask;
use super::study::Study;
use crate::plot::{Bar, bars};
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Plot, Section};
use crate::traces::{RequestTrace, TaskTrace};
use duet_sim::DraftStep;
use duet_speculate::Method;

/// The paper's figures of a task: PLD, with ours, SAM, with ours; each for Qwen2.5-1.5B, Qwen2.5-7B and Llama-3.2-1B.
fn table_4(task: PaperTask) -> [[f64; 3]; 4] {
    match task {
        PaperTask::Summary => [[2.53, 1.55, 1.42], [2.91, 1.84, 1.70], [3.60, 1.96, 1.68], [4.21, 2.43, 2.07]],
        PaperTask::Rag => [[3.19, 1.63, 1.77], [3.73, 1.89, 2.11], [4.42, 2.29, 2.25], [5.47, 2.80, 2.66]],
        PaperTask::Ui => [[2.28, 1.64, 1.57], [2.64, 1.73, 1.82], [3.56, 2.44, 1.72], [4.01, 2.59, 2.05]],
        PaperTask::Tweet => [[2.53, 2.06, 1.49], [3.17, 2.52, 1.72], [3.57, 2.98, 1.79], [3.82, 3.70, 2.18]],
    }
}

/// What a column is called, which method is traced for it, and where it stands in [`table_4`].
type Column = (&'static str, Method, Option<usize>);
const COLUMNS: [Column; 5] = [
    ("PLD", Method::Pld, Some(0)),
    ("PLD with calibration and extension", Method::PldDuet, Some(1)),
    ("SAM", Method::Sam, Some(2)),
    ("CoordGen", Method::CoordGen, Some(3)),
    ("duet", Method::Duet, None),
];

/// What is compared with what, and where they stand in [`table_4`].
type Gain = (&'static str, [Method; 2], Option<[usize; 2]>);
const GAINS: [Gain; 3] = [
    ("gain of calibration and extension over PLD", [Method::PldDuet, Method::Pld], Some([1, 0])),
    ("gain of CoordGen over SAM", [Method::CoordGen, Method::Sam], Some([3, 2])),
    ("gain of duet over SAM", [Method::Duet, Method::Sam], None),
];

pub(super) fn section(study: &Study) -> Section {
    let mut section = Section {
        id: "acceptance",
        title: "Tokens a verification (Table 4)",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    for trace in &study.traces {
        section.rows.extend(COLUMNS.iter().map(|column| accepted_row(study, trace, column)));
        section.rows.extend(GAINS.iter().map(|gain| gain_row(study, trace, gain)));
        section.plots.extend(plot(trace));
    }
    section
}

const PROSE: [&str; 2] = [
    "Tokens of an answer over the passes that verified them; decoding without drafts has 1. The first token, which the \
     prompt brings, is in neither. From and to are the lowest and the highest request. The paper's figures are of three \
     models, none of which is this one; the range is theirs, and the note has them one by one (Qwen2.5-1.5B, Qwen2.5-7B, \
     Llama-3.2-1B).",
    "Drafts of PLD and SAM end where nothing is worth at least 0.02 tokens; the others are filled to 31 rows, which makes 32 \
     with the last token. History is what was answered to earlier requests of the same file. PLD with the paper's techniques \
     calibrates from answers, too, which the paper does not; duet adds several candidates a place and everything that passes \
     tell. CoordGen is the paper's calibration, extension and longest drafts, and differs from its words in three points: \
     successors are kept under two tokens as well as under one, drafters are merged by what was learned of how often each \
     is right, and a rejected segment is proposed for eight tokens of \
     the answer, where the paper drops it when drafts come to a length that it does not state.",
];

/// Tokens a verification.
pub(super) fn accepted(requests: &[RequestTrace], method: Method) -> Option<f64> {
    let steps = || requests.iter().flat_map(|request| &request.by(method).steps);
    let tokens: u64 = steps().map(|step| u64::from(DraftStep::tokens(step).0)).sum();
    let passes = steps().count();
    (passes > 0).then(|| tokens as f64 / passes as f64)
}

fn accepted_row(study: &Study, trace: &TaskTrace, (name, method, place): &Column) -> Row {
    let setting = study.setting(&trace.title());
    let row = Row::new("Table 4", setting, format!("tokens a verification, {name}"), Unit::Count)
        .computed(trace.pooled(|requests| accepted(requests, *method)), trace.requests.len());
    match PaperTask::of(&trace.task).zip(*place) {
        Some((task, place)) => beside(row, table_4(task)[place]),
        None => row,
    }
}

fn gain_row(study: &Study, trace: &TaskTrace, (name, [ours, theirs], places): &Gain) -> Row {
    let gain = |requests: &[RequestTrace]| Some(accepted(requests, *ours)? / accepted(requests, *theirs)?);
    let row = Row::new("Table 4", study.setting(&trace.title()), *name, Unit::Times)
        .computed(trace.pooled(gain), trace.requests.len());
    match PaperTask::of(&trace.task).zip(*places) {
        Some((task, [ours, theirs])) => {
            let table = table_4(task);
            beside(row, [0, 1, 2].map(|model| table[ours][model] / table[theirs][model]))
        }
        None => row,
    }
}

/// The paper's range over its models.
fn beside(row: Row, models: [f64; 3]) -> Row {
    let (low, high) = models.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &x| (low.min(x), high.max(x)));
    let hundredths = |figure: f64| (figure * 100.0).round() / 100.0;
    row.paper(Paper::Between(hundredths(low), hundredths(high)))
        .note(models.map(|figure| format!("{figure:.2}")).join(", "))
}

fn plot(trace: &TaskTrace) -> Option<Plot> {
    let bar = |(name, method, _): &Column| {
        let parts = vec![accepted(&trace.requests, *method).unwrap_or(0.0)];
        Bar {
            name: (*name).split(' ').next().unwrap_or(name).to_owned() + if name.contains(' ') { "+" } else { "" },
            parts,
        }
    };
    let shown: Vec<Bar> = COLUMNS.iter().map(bar).collect();
    Plot::of(format!("{}: tokens a verification", trace.title()), bars("tokens", &["tokens"], &shown))
}
