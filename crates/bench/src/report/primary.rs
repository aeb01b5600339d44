//! The primary predictions: reactive latency over that of running alone, and how flat it stays as background load grows.
//!
//! Both are of one policy, so that no baseline has to be saturated for them to say something. (Agent.xpu §6.2)

use super::lab::{Lab, Results};
use super::outcome::{Estimate, Outcome, change, ratio};
use super::policies::{BASELINE, OURS};
use super::readings::{reactive_mean, reactive_p90};
use super::row::{Aim, Paper, Row, Unit};
use super::section::{Plot, Section};
use super::setting::{Cell, Load, Size};
use crate::plot::{Axis, Mark, Point, Series, lines};
use duet_scheduler::policy::PolicyName;

/// Reactive requests a minute, and proactive ones beside them. (Agent.xpu Fig. 11)
const REACTIVE: [f64; 3] = [1.0, 3.0, 5.0];
const PROACTIVE: [f64; 5] = [0.0, 4.0, 6.0, 8.0, 10.0];
/// Of the latency alone, at the most background that the paper has: the aim of `duet`.
const AIM: f64 = 1.3;

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let results = lab.cells("primary predictions", cells());
    let mut rows = Vec::new();
    for size in Size::ALL {
        for policy in [PolicyName::Duet, PolicyName::AgentXpu, BASELINE] {
            rows.extend(REACTIVE.map(|reactive| beside(&results, size, policy, reactive)));
        }
        for policy in [PolicyName::AgentXpu, PolicyName::Duet, BASELINE] {
            rows.extend(REACTIVE.map(|reactive| growth(&results, size, policy, reactive)));
        }
    }
    Section {
        id: "primary",
        title: "Reactive latency beside background work",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Vec::new(),
        plots: Size::ALL.iter().filter_map(|&size| plot(&results, size)).collect(),
    }
}

const PROSE: [&str; 2] = [
    "Alone is the same reactive trace under the same policy without any proactive request: what persons would get if \
     nothing ran in the background. Reactive requests that meet each other wait alone, too, so the ratio is what the \
     background costs and nothing else. The aim of duet is a ratio of at most 1.3 beside 10 proactive requests a minute.",
    "Growth is that of the reactive mean from 4 to 10 proactive requests a minute. The paper gives one figure for each \
     model and does not say at how many reactive requests a minute; all three are shown beside it. The baseline's growth \
     is for comparison: the paper says only that it degrades quickly.",
];

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for size in Size::ALL {
        for policy in OURS.into_iter().chain([BASELINE]) {
            for reactive in REACTIVE {
                cells.extend(PROACTIVE.map(|proactive| Cell { size, policy, load: Load::mixed(reactive, proactive) }));
            }
        }
    }
    cells
}

fn at(results: &Results<Cell>, size: Size, policy: PolicyName, load: Load) -> &Outcome {
    results.get(&Cell { size, policy, load })
}

fn beside(results: &Results<Cell>, size: Size, policy: PolicyName, reactive: f64) -> Row {
    let load = Load::mixed(reactive, 10.0);
    let (mixed, alone) = (at(results, size, policy, load), at(results, size, policy, load.alone()));
    let row = Row::new("§6.2", format!("{size}, {load}, {policy}"), "reactive mean over alone", Unit::Times)
        .predicted(mixed.beside(alone, reactive_mean, ratio), mixed);
    if policy == PolicyName::Duet { row.aim(Aim::AtMost(AIM)) } else { row }
}

fn growth(results: &Results<Cell>, size: Size, policy: PolicyName, reactive: f64) -> Row {
    let [few, many] = [4.0, 10.0].map(|proactive| at(results, size, policy, Load::mixed(reactive, proactive)));
    let setting = format!("{size}, {reactive} + 4 to {reactive} + 10 a minute, {policy}");
    let row = Row::new("§6.2", setting, "growth of the reactive mean", Unit::Percent)
        .predicted(many.beside(few, reactive_mean, change), many);
    if policy == PolicyName::AgentXpu { row.paper(Paper::Is(size.choose([19.0, 49.0]))) } else { row }
}

fn plot(results: &Results<Cell>, size: Size) -> Option<Plot> {
    let mut series = Vec::new();
    for policy in OURS.into_iter().chain([BASELINE]) {
        for (name, read) in [("mean", reactive_mean as super::outcome::Read), ("P90", reactive_p90)] {
            let point = |proactive: f64| {
                let estimate: Estimate = at(results, size, policy, Load::mixed(3.0, proactive)).read(read)?;
                Some(Point { x: proactive, y: estimate.value, mark: Mark::Dot })
            };
            let points = PROACTIVE.into_iter().filter_map(point).collect();
            series.push(Series { name: format!("{policy}, {name}"), points });
        }
    }
    let x = Axis::Linear { label: "proactive requests a minute beside 3 reactive ones" };
    let svg = lines(&x, &Axis::Log { label: "reactive latency, s" }, &series);
    Plot::of(format!("{size}: reactive latency over background load; at 0 is running alone"), svg)
}
