//! What it costs: the iGPU's time, energy, and how soon background work gives way. (Agent.xpu §6.4, Fig. 13; §4.4)

use super::lab::{Lab, Results};
use super::outcome::{Estimate, Read, change, ratio};
use super::policies::{BASELINE, COMPARED, OURS};
use super::readings::{igpu_seconds, joules};
use super::row::{Paper, Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Cell, Load, Size};
use duet_scheduler::policy::PolicyName;
use duet_sim::{Figures, percentile};

/// The paper's changes, in per cent.
const IGPU_BESIDE_SERIAL: f64 = -32.5;
const IGPU_BESIDE_BATCHING: f64 = -37.1;
const ENERGY: f64 = -26.8;
/// The paper's bound on preemption, in milliseconds.
const PREEMPT_MS: f64 = 100.0;

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let cells = Size::ALL.into_iter().flat_map(|size| COMPARED.map(|policy| cell(size, policy)));
    let results = lab.cells("utilisation and energy", cells);
    let mut rows = Vec::new();
    for size in Size::ALL {
        for policy in OURS {
            rows.extend(cost(&results, size, policy));
        }
        rows.extend([PolicyName::CpuBatching, PolicyName::Serial].map(|policy| energy_order(&results, size, policy)));
        rows.extend(OURS.into_iter().flat_map(|policy| preemption(&results, size, policy)));
    }
    Section {
        id: "overhead",
        title: "Utilisation, energy and preemption (Fig. 13)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Size::ALL.map(|size| table(&results, size)).into(),
        plots: Vec::new(),
    }
}

const PROSE: [&str; 4] = [
    "All at 3 + 6 requests a minute. The iGPU's time is counted as the paper's monitor shows it: passes that read prompts \
     whole, passes that only decode by 46 %, summed over the trace to the end of its last request. The paper does not say for \
     which model its figures are; they stand beside both.",
    "A pass of the iGPU baseline that reads a chunk and decodes beside it counts whole, as it keeps the unit at its products. \
     The paper leaves out what batching computes twice; nothing is computed twice here.",
    "Energy is each unit's power at what it does, over all tokens of prompts and answers; the package's other parts, the \
     memory's among them, are in no figure of the paper and in none here. The saving is bounded by what moves to the NPU, and \
     decode, which most of the time goes into, takes the same power under both. What moves is also worth less than it seems: \
     in the baseline, decode rides in the passes that read prompts, nearly for nothing, and it cannot where prompts are read \
     elsewhere.",
    "Preemption is the time from a reactive request's arrival, while background work runs and no other reactive prompt waits, \
     to its first kernel. The bound of 100 ms is the policy's own; where it is passed, a single kernel was longer: a kernel is \
     the least that can be waited for, and attention over a long prompt is one.",
];

fn cell(size: Size, policy: PolicyName) -> Cell {
    Cell { size, policy, load: Load::mixed(3.0, 6.0) }
}

fn cost(results: &Results<Cell>, size: Size, policy: PolicyName) -> [Row; 3] {
    let ours = results.get(&cell(size, policy));
    let against = |baseline: PolicyName, quantity: &str, read: Read, paper: f64| {
        let theirs = results.get(&cell(size, baseline));
        let setting = format!("{}, against {baseline}", cell(size, policy));
        let row = Row::new("Fig. 13", setting, quantity, Unit::Percent)
            .predicted(ours.beside(theirs, read, change), ours)
            .against(baseline, theirs);
        if policy == PolicyName::AgentXpu { row.paper(Paper::Is(paper)) } else { row }
    };
    [
        against(PolicyName::Serial, "iGPU utilisation", igpu_seconds, IGPU_BESIDE_SERIAL),
        against(BASELINE, "iGPU utilisation", igpu_seconds, IGPU_BESIDE_BATCHING),
        against(BASELINE, "energy per token", joules, ENERGY),
    ]
}

/// The paper has the CPU as the worst and the serial baseline next: both above 1.
fn energy_order(results: &Results<Cell>, size: Size, policy: PolicyName) -> Row {
    let (theirs, baseline) = (results.get(&cell(size, policy)), results.get(&cell(size, BASELINE)));
    Row::new("Fig. 13", cell(size, policy).to_string(), format!("energy per token over {BASELINE}"), Unit::Times)
        .predicted(theirs.beside(baseline, joules, ratio), theirs)
        .against(policy, theirs)
}

fn preemption(results: &Results<Cell>, size: Size, policy: PolicyName) -> [Row; 3] {
    let cell = cell(size, policy);
    let outcome = results.get(&cell);
    let found: usize = outcome.seeds().map(|figures| figures.preempt.len()).sum();
    let longest = outcome.read(longest).map(Estimate::of_highest);
    let quantities =
        [("median", outcome.read(median)), ("99th percentile", outcome.read(last_hundredth)), ("longest", longest)];
    quantities.map(|(name, estimate)| {
        let row = Row::new("§4.4", cell.to_string(), format!("preemption, {name}"), Unit::Milliseconds)
            .predicted(estimate, outcome)
            .note(format!("{found} times"));
        if policy == PolicyName::AgentXpu { row.paper(Paper::AtMost(PREEMPT_MS)) } else { row }
    })
}

fn median(figures: &Figures) -> Option<f64> {
    waited(figures, 0.5)
}

fn last_hundredth(figures: &Figures) -> Option<f64> {
    waited(figures, 0.99)
}

fn longest(figures: &Figures) -> Option<f64> {
    waited(figures, 1.0)
}

fn waited(figures: &Figures, share: f64) -> Option<f64> {
    let sorted: Vec<f64> = figures.preempt.iter().map(|wait| wait.as_millis_f64()).collect();
    percentile(&sorted, share)
}

fn table(results: &Results<Cell>, size: Size) -> Table {
    let caption = format!("{size}, {}: iGPU time as the monitor shows it, and energy", Load::mixed(3.0, 6.0));
    let mut table = Table::new(caption, &["policy", "iGPU, s", "J/token"]);
    for policy in COMPARED {
        let value = |read: Read| results.get(&cell(size, policy)).read(read).map(|estimate| estimate.value);
        table.push(vec![Entry::text(policy), Entry::number(value(igpu_seconds), 0), Entry::number(value(joules), 3)]);
    }
    table
}
