//! Better than the paper's system: `duet` against `agent-xpu`, for both classes at once.

use super::lab::{Lab, Results};
use super::outcome::{Read, change};
use super::readings::{joules, proactive_mean, reactive_mean, reactive_p90};
use super::row::{Aim, Row, Unit};
use super::section::Section;
use super::setting::{Cell, Load, Setting, Size};
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
    let literal = literal(lab);
    let rows = Size::ALL.into_iter().flat_map(|size| {
        LOADS
            .into_iter()
            .flat_map(|(reactive, proactive)| rows(&results, size, Load::mixed(reactive, proactive)))
            .collect::<Vec<_>>()
    });
    let rows = rows.chain(Size::ALL.into_iter().flat_map(|size| {
        LOADS
            .into_iter()
            .flat_map(|(reactive, proactive)| {
                beside_literal(&results, &literal, size, Load::mixed(reactive, proactive))
            })
            .collect::<Vec<_>>()
    }));
    Section {
        id: "beyond",
        title: "Better than the paper's system",
        prose: PROSE.map(str::to_owned).into(),
        rows: rows.collect(),
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "duet against agent-xpu, on the same traces; negative is better. A policy is better if neither class pays for the other: \
     both means are to be below zero.",
    "agent-xpu is as it was tuned in the section on the baselines; rows against its literal values \
     (chunk 256, B_cap 3, age 30 s) follow.",
];

/// The paper's policy with its literal values, at all loads.
fn literal(lab: &mut Lab<'_>) -> Results<(Size, Load)> {
    let loads = |size: Size| LOADS.map(|(reactive, proactive)| (size, Load::mixed(reactive, proactive)));
    let setting = |(size, load)| Setting { simulation: lab.untuned(size, PolicyName::AgentXpu), load };
    let settings = Size::ALL.into_iter().flat_map(loads).map(|of| (of, setting(of))).collect();
    lab.run("agent-xpu with the paper's values", lab.plan.seeds, settings)
}

fn beside_literal(results: &Results<Cell>, literal: &Results<(Size, Load)>, size: Size, load: Load) -> [Row; 2] {
    let (ours, theirs) = (results.get(&Cell { size, policy: PolicyName::Duet, load }), literal.get(&(size, load)));
    let classes: [(&str, Read); 2] = [("reactive mean", reactive_mean), ("proactive mean", proactive_mean)];
    classes.map(|(quantity, read)| {
        let setting = format!("{size}, {load}, duet against agent-xpu with the paper's values");
        Row::new("beyond", setting, quantity, Unit::Percent)
            .predicted(ours.beside(theirs, read, change), ours)
            .against(PolicyName::AgentXpu, theirs)
    })
}

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
