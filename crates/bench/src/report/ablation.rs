//! Ablation: every mechanism switched off in turn. (Agent.xpu §4.3-4.5)

use super::lab::{Lab, Results};
use super::outcome::{Outcome, Read, change};
use super::policies::OURS;
use super::readings::{joules, proactive_mean, reactive_mean, reactive_p90};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use duet_scheduler::Mechanism;
use duet_scheduler::policy::PolicyName;

/// Loads at which mechanisms have something to do: the paper's, and one at which background work always waits.
const LOADS: [(Size, Load); 2] = [(Size::Small, Load::mixed(3.0, 6.0)), (Size::Large, Load::mixed(5.0, 10.0))];

/// All that these runs have a use for: their models are in memory.
fn mechanisms() -> impl Iterator<Item = Mechanism> {
    Mechanism::ALL.into_iter().filter(|mechanism| *mechanism != Mechanism::GiveBack)
}

/// What is missing, if anything.
type Variant = (Size, PolicyName, Option<Mechanism>);

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let mut settings = Vec::new();
    for (size, load) in LOADS {
        for policy in OURS {
            for missing in [None].into_iter().chain(mechanisms().map(Some)) {
                let mut simulation = lab.simulation(size, policy);
                if let Some(mechanism) = missing {
                    simulation.config.mechanisms = simulation.config.mechanisms.without(mechanism);
                }
                settings.push(((size, policy, missing), Setting { simulation, load }));
            }
        }
    }
    let results = lab.run("ablation", lab.plan.seeds, settings);
    let (mut rows, mut tables) = (Vec::new(), Vec::new());
    for (size, load) in LOADS {
        for policy in OURS {
            rows.extend(mechanisms().flat_map(|missing| without(&results, (size, policy), load, missing)));
            tables.push(table(&results, (size, policy), load));
        }
    }
    Section {
        id: "ablation",
        title: "What each mechanism is worth",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables,
        plots: Vec::new(),
    }
}

const PROSE: [&str; 2] = [
    "The same traces without each mechanism. Positive is slower: what the mechanism saves. A mechanism may cost one class what \
     it gives the other, so both stand side by side; some do nothing here. Teams are for lanes that can run one kernel \
     together, which an NPU and an iGPU cannot. Spilling is for memory that is scarce, and it is not in these runs.",
    "Negative figures are mechanisms that cost more than they give at this load. They are the paper's, and they stay in \
     agent-xpu, which is the paper's policy.",
];

fn without(results: &Results<Variant>, (size, policy): (Size, PolicyName), load: Load, missing: Mechanism) -> [Row; 2] {
    let (ours, whole) = (results.get(&(size, policy, Some(missing))), results.get(&(size, policy, None)));
    let classes: [(&str, Read); 2] = [("reactive mean", reactive_mean), ("proactive mean", proactive_mean)];
    classes.map(|(quantity, read)| {
        Row::new("§6.3", format!("{size}, {load}, {policy} without {missing}"), quantity, Unit::Percent)
            .predicted(ours.beside(whole, read, change), ours)
    })
}

fn table(results: &Results<Variant>, (size, policy): (Size, PolicyName), load: Load) -> Table {
    let head = ["without", "reactive mean, s", "P90, s", "proactive mean, s", "J/token", "longest preemption, ms"];
    let mut table = Table::new(format!("{size}, {load}, {policy}"), &head);
    for missing in [None].into_iter().chain(mechanisms().map(Some)) {
        let outcome: &Outcome = results.get(&(size, policy, missing));
        let value = |read: Read| outcome.read(read).map(|estimate| estimate.value);
        table.push(vec![
            missing.map_or(Entry::text("–"), Entry::text),
            Entry::number(value(reactive_mean), 2),
            Entry::number(value(reactive_p90), 2),
            Entry::number(value(proactive_mean), 2),
            Entry::number(value(joules), 3),
            Entry::number(value(|figures| figures.preempt.last().map(|wait| wait.as_millis_f64())), 0),
        ]);
    }
    table
}
