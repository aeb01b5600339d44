//! Better than the paper's system: `duet` against `agent-xpu`, for both classes at once.

use super::lab::{Lab, Results};
use super::outcome::{Read, change};
use super::readings::{joules, proactive_mean, reactive_mean, reactive_p90};
use super::row::{Aim, Row, Unit};
use super::section::Section;
use super::setting::{Cell, Load, Size};
use duet_scheduler::policy::PolicyName;

/// From the paper's lightest mix to one past the paper's.
const LOADS: [(f64, f64); 6] = [(1.0, 6.0), (3.0, 6.0), (5.0, 6.0), (3.0, 10.0), (5.0, 10.0), (3.0, 16.0)];

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let policies = [PolicyName::Duet, PolicyName::AgentXpu];
    let mut cells = Vec::new();
    for size in Size::ALL {
        for (reactive, proactive) in LOADS {
            cells.extend(policies.map(|policy| Cell { size, policy, load: Load::mixed(reactive, proactive) }));
        }
    }
    let results = lab.cells("duet against agent-xpu", cells);
    let rows = Size::ALL.into_iter().flat_map(|size| {
        LOADS
            .into_iter()
            .flat_map(|(reactive, proactive)| rows(&results, size, Load::mixed(reactive, proactive)))
            .collect::<Vec<_>>()
    });
    Section {
        id: "beyond",
        title: "Better than the paper's system",
        prose: PROSE.map(str::to_owned).into(),
        rows: rows.collect(),
        ..Section::default()
    }
}

const PROSE: [&str; 1] = [
    "duet against agent-xpu, on the same traces; negative is better. A policy is better if neither class pays for the other: \
     both means are to be below zero.",
];

fn rows(results: &Results<Cell>, size: Size, load: Load) -> [Row; 4] {
    let [ours, theirs] =
        [PolicyName::Duet, PolicyName::AgentXpu].map(|policy| results.get(&Cell { size, policy, load }));
    let row = |quantity: &str, read: Read| {
        Row::new("beyond", format!("{size}, {load}, duet against agent-xpu"), quantity, Unit::Percent)
            .predicted(ours.beside(theirs, read, change), ours)
            .against(PolicyName::AgentXpu, theirs)
    };
    [
        row("reactive mean", reactive_mean).aim(Aim::Below(0.0)),
        row("proactive mean", proactive_mean).aim(Aim::Below(0.0)),
        row("reactive P90", reactive_p90),
        row("energy per token", joules),
    ]
}
