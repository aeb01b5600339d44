//! Mixed workloads: both classes against the baseline's, at the paper's rates. (Agent.xpu §6.2, Fig. 11)

use super::lab::{Lab, Results};
use super::outcome::{Outcome, Read, change, ratio};
use super::policies::{BASELINE, OURS};
use super::readings::{
    drain, joules, npu_busy, proactive_mean, proactive_norm, reactive_mean, reactive_p90, reactive_ttft, utilisation,
};
use super::row::{Paper, Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Cell, Load, Size};
use duet_scheduler::policy::PolicyName;

const REACTIVE: [f64; 3] = [1.0, 3.0, 5.0];
const PROACTIVE: f64 = 6.0;

/// The paper's changes of the reactive mean, in per cent, at each of [`REACTIVE`].
const REDUCTIONS: [[f64; 3]; 2] = [[-91.61, -93.84, -96.01], [-96.23, -96.01, -96.70]];
/// Those of the proactive mean, over all rates.
const PROACTIVE_CHANGES: [(f64, f64); 2] = [(-34.4, -0.3), (-58.7, -6.1)];
/// Those of proactive throughput. (§1)
const THROUGHPUT_GAINS: (f64, f64) = (0.3, 58.0);

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let results = lab.cells("mixed workloads", cells());
    let mut rows = Vec::new();
    for policy in OURS {
        for size in Size::ALL {
            for (place, reactive) in REACTIVE.into_iter().enumerate() {
                rows.extend(against_baseline(&results, size, policy, reactive, size.choose(REDUCTIONS)[place]));
            }
        }
    }
    for size in Size::ALL {
        rows.extend(REACTIVE.map(|reactive| classes(&results, size, reactive)));
    }
    Section {
        id: "mixed",
        title: "Mixed workloads (Fig. 11)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Size::ALL.map(|size| everyone(&results, size)).into(),
        plots: Vec::new(),
    }
}

const PROSE: [&str; 4] = [
    "Six proactive requests a minute beside one, three and five reactive ones, against continuous batching on the iGPU; \
     negative is faster. Each row says how busy the baseline's iGPU was while requests came, and how long it needed for \
     what was left then.",
    "The predicted reductions are smaller than the paper's, and they grow with the baseline's load. A reduction of \
     92 to 97 % means that the baseline takes 12 to 30 times as long as the policy, which is possible only with a queue that \
     grows as long as requests come. How busy the baseline is, with the published kernel times and these data sets, stands \
     in each row. The paper's prompts may differ between the classes more than these do (its Fig. 9 \
     shows them and its text gives no figures), or its baseline was slower under mixed batches than its kernels are; neither \
     can be told from the text, and nothing was tuned to hide it.",
    "Proactive throughput is taken as the inverse of normalised latency (seconds for each token of prompt and answer): the \
     paper does not say how it is meant for open arrivals, where every policy serves what comes.",
    "The last rows say how much slower reactive requests are than proactive ones under the baseline, which knows no classes. \
     The paper finds them consistently slower.",
];

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for size in Size::ALL {
        for reactive in REACTIVE {
            let load = Load::mixed(reactive, PROACTIVE);
            cells.extend(OURS.into_iter().chain([BASELINE]).map(|policy| Cell { size, policy, load }));
        }
        cells.extend(PolicyName::ALL.map(|policy| Cell { size, policy, load: Load::mixed(3.0, PROACTIVE) }));
    }
    cells
}

/// Reactive mean and 90th percentile, proactive mean and throughput.
fn against_baseline(
    results: &Results<Cell>,
    size: Size,
    policy: PolicyName,
    reactive: f64,
    reduction: f64,
) -> [Row; 4] {
    let cell = Cell { size, policy, load: Load::mixed(reactive, PROACTIVE) };
    let (ours, baseline) = (results.get(&cell), results.get(&Cell { policy: BASELINE, ..cell }));
    let row = |quantity: &str, read: Read, compare: fn(f64, f64) -> f64, paper: Option<Paper>| {
        let row = Row::new("Fig. 11", cell.to_string(), quantity, Unit::Percent)
            .predicted(ours.beside(baseline, read, compare), ours)
            .against(BASELINE, baseline);
        // The paper's figures are of its own system.
        match paper.filter(|_| policy == PolicyName::AgentXpu) {
            Some(paper) => row.paper(paper),
            None => row,
        }
    };
    let (best, worst) = size.choose(PROACTIVE_CHANGES);
    let (least, most) = THROUGHPUT_GAINS;
    let proactive = Some(Paper::Between(best, worst));
    [
        row("reactive mean", reactive_mean, change, Some(Paper::Is(reduction))),
        row("reactive P90", reactive_p90, change, None),
        row("proactive mean", proactive_mean, change, proactive),
        row("proactive throughput", proactive_norm, gain, Some(Paper::Between(least, most))),
    ]
}

/// By how much the inverse of the first is more than that of the second, in per cent.
fn gain(ours: f64, theirs: f64) -> f64 {
    change(theirs, ours)
}

fn classes(results: &Results<Cell>, size: Size, reactive: f64) -> Row {
    let cell = Cell { size, policy: BASELINE, load: Load::mixed(reactive, PROACTIVE) };
    let outcome = results.get(&cell);
    let quantity = "reactive mean over proactive mean";
    let over: Read = |figures| Some(ratio(figures.reactive.mean_s?, figures.proactive.mean_s?));
    Row::new("Fig. 11", cell.to_string(), quantity, Unit::Times)
        .predicted(outcome.read(over), outcome)
        .against(BASELINE, outcome)
}

/// All policies at three reactive requests a minute.
fn everyone(results: &Results<Cell>, size: Size) -> Table {
    let load = Load::mixed(3.0, PROACTIVE);
    let columns: [(&str, Read, usize); 6] = [
        ("reactive mean, s", reactive_mean, 2),
        ("P90, s", reactive_p90, 2),
        ("first token, s", reactive_ttft, 2),
        ("proactive mean, s", proactive_mean, 2),
        ("J/token", joules, 3),
        ("drain, s", drain, 0),
    ];
    let mut table = Table::new(
        format!(
            "{size}, {load}: every policy. What is busy is the unit that decodes (and the NPU), while requests come"
        ),
        &["policy"],
    );
    table
        .head
        .extend(columns.iter().map(|(name, ..)| (*name).to_owned()).chain(["busy, %".into(), "NPU busy, %".into()]));
    for policy in PolicyName::ALL {
        let outcome: &Outcome = results.get(&Cell { size, policy, load });
        let value = |read: Read| outcome.read(read).map(|estimate| estimate.value);
        let mut row = vec![Entry::text(policy)];
        row.extend(columns.iter().map(|&(_, read, decimals)| Entry::number(value(read), decimals)));
        row.extend([Entry::number(value(utilisation(policy)), 0), Entry::number(value(npu_busy), 0)]);
        table.push(row);
    }
    table
}
