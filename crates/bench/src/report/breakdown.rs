//! Where the time of a request goes: active and pending, in prefill and in decode. (Agent.xpu §6.3, Fig. 12)

use super::lab::{Lab, Results};
use super::outcome::{Outcome, Read, ratio};
use super::policies::{BASELINE, COMPARED};
use super::readings::{PARTS, part};
use super::row::{Paper, Row, Unit};
use super::section::{Plot, Section};
use super::setting::{Cell, Load, Size};
use crate::plot::{Axis, Bar, Mark, Point, Series, bars, lines};
use duet_scheduler::policy::PolicyName;
use duet_types::Class;

/// The paper's rates. (Fig. 12)
const REACTIVE: f64 = 3.0;
const PROACTIVE: f64 = 6.0;
/// Proactive rates for the decode that waits.
const RATES: [f64; 5] = [0.0, 4.0, 6.0, 8.0, 10.0];
/// Mean pending prefill of reactive requests, in seconds.
const PENDING_S: f64 = 0.048;

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let cells = Size::ALL.into_iter().flat_map(|size| {
        let mixed = COMPARED.map(|policy| cell(size, policy, PROACTIVE));
        mixed.into_iter().chain(RATES.map(|rate| cell(size, PolicyName::AgentXpu, rate)))
    });
    let results = lab.cells("breakdown", cells);
    let mut section = Section {
        id: "breakdown",
        title: "Where the time goes (Fig. 12)",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    for size in Size::ALL {
        section.rows.extend(COMPARED.map(|policy| pending_prefill(&results, size, policy)));
        section.rows.push(classes_prefill(&results, size));
        section.rows.extend(active_prefill(&results, size));
        section
            .rows
            .extend([BASELINE, PolicyName::CpuBatching, PolicyName::Serial].map(|p| pending_decode(&results, size, p)));
        section
            .plots
            .extend([Class::Reactive, Class::Proactive].into_iter().filter_map(|class| stack(&results, size, class)));
    }
    section.plots.extend(decode_over_load(&results));
    section
}

const PROSE: [&str; 3] = [
    "A request is active while a kernel with its rows is on a lane, and pending otherwise; prefill lasts from submission to \
     the first token, decode from there to the end. All at 3 + 6 requests a minute. The paper shows shares; these are seconds.",
    "The paper's 0.048 s of pending prefill is not reached. It is not the preemption, which takes milliseconds (below): at \
     three reactive requests a minute some meet each other, reactive requests do not preempt each other, and the second waits \
     for the first one's prompt. With prefills of 2 to 4 s that alone is more; 0.048 s would need prefills of about 0.8 s, and \
     so shorter reactive prompts than these data sets have.",
    "The paper says that reactive prefill is faster than proactive prefill under its policy, that the serial baseline's is the \
     fastest, and that decode does not wait in the baselines. The rows show each.",
];

fn cell(size: Size, policy: PolicyName, proactive: f64) -> Cell {
    Cell { size, policy, load: Load::mixed(REACTIVE, proactive) }
}

/// One of [`PARTS`] of a class.
fn reads(class: Class) -> [Read; 4] {
    match class {
        Class::Reactive => [
            |figures| part(&figures.reactive, 0),
            |figures| part(&figures.reactive, 1),
            |figures| part(&figures.reactive, 2),
            |figures| part(&figures.reactive, 3),
        ],
        Class::Proactive => [
            |figures| part(&figures.proactive, 0),
            |figures| part(&figures.proactive, 1),
            |figures| part(&figures.proactive, 2),
            |figures| part(&figures.proactive, 3),
        ],
    }
}

fn row(cell: Cell, quantity: impl Into<String>, unit: Unit) -> Row {
    Row::new("Fig. 12", cell.to_string(), quantity, unit)
}

fn pending_prefill(results: &Results<Cell>, size: Size, policy: PolicyName) -> Row {
    let cell = cell(size, policy, PROACTIVE);
    let outcome = results.get(&cell);
    let row = row(cell, "reactive pending prefill", Unit::Seconds);
    let row = row.predicted(outcome.read(reads(Class::Reactive)[1]), outcome);
    if policy == PolicyName::AgentXpu { row.paper(Paper::Is(PENDING_S)) } else { row }
}

/// Prefill of a reactive request over that of a proactive one, whose prompts are about as long: below 1 if both units
/// help it.
fn classes_prefill(results: &Results<Cell>, size: Size) -> Row {
    let cell = cell(size, PolicyName::AgentXpu, PROACTIVE);
    let outcome = results.get(&cell);
    let read: Read = |figures| Some(ratio(part(&figures.reactive, 0)?, part(&figures.proactive, 0)?));
    row(cell, "active prefill, reactive over proactive", Unit::Times).predicted(outcome.read(read), outcome)
}

/// Active prefill over that of Agent.xpu.
fn active_prefill(results: &Results<Cell>, size: Size) -> [Row; 2] {
    let ours = results.get(&cell(size, PolicyName::AgentXpu, PROACTIVE));
    [BASELINE, PolicyName::Serial].map(|policy| {
        let cell = cell(size, policy, PROACTIVE);
        let outcome = results.get(&cell);
        let estimate = outcome.beside(ours, reads(Class::Reactive)[0], ratio);
        row(cell, "reactive active prefill over that of agent-xpu", Unit::Times).predicted(estimate, outcome)
    })
}

fn pending_decode(results: &Results<Cell>, size: Size, policy: PolicyName) -> Row {
    let cell = cell(size, policy, PROACTIVE);
    let outcome = results.get(&cell);
    row(cell, "reactive pending decode", Unit::Seconds)
        .paper(Paper::Is(0.0))
        .predicted(outcome.read(reads(Class::Reactive)[3]), outcome)
}

fn stack(results: &Results<Cell>, size: Size, class: Class) -> Option<Plot> {
    let reads = reads(class);
    let bar = |policy: PolicyName| {
        let outcome: &Outcome = results.get(&cell(size, policy, PROACTIVE));
        let parts = reads.iter().map(|&read| outcome.read(read).map_or(0.0, |estimate| estimate.value));
        Bar { name: policy.to_string(), parts: parts.collect() }
    };
    let name = match class {
        Class::Reactive => "reactive",
        Class::Proactive => "proactive",
    };
    // Baselines that are far past saturation would leave no room for the others.
    let shown: Vec<Bar> = COMPARED[..3].iter().map(|&policy| bar(policy)).collect();
    Plot::of(format!("{size}, {name} requests, at 3 + 6 a minute"), bars("mean, s", &PARTS, &shown))
}

fn decode_over_load(results: &Results<Cell>) -> Option<Plot> {
    let mut series = Vec::new();
    for size in Size::ALL {
        for (name, class) in [("reactive", Class::Reactive), ("proactive", Class::Proactive)] {
            let point = |rate: f64| {
                let outcome = results.get(&cell(size, PolicyName::AgentXpu, rate));
                let y = outcome.read(reads(class)[3])?.value;
                Some(Point { x: rate, y, mark: Mark::Dot })
            };
            series.push(Series {
                name: format!("{size}, {name}"),
                points: RATES.into_iter().filter_map(point).collect(),
            });
        }
    }
    let x = Axis::Linear { label: "proactive requests a minute beside 3 reactive ones" };
    let svg = lines(&x, &Axis::Linear { label: "pending decode, s" }, &series);
    Plot::of("agent-xpu: decode that waits, over background load", svg)
}
