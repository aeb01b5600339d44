//! The baselines, each set to the best that a sweep finds for it: no straw men.
//!
//! Best is the lowest reactive mean at three reactive and six proactive requests a minute, for each model; for proactive
//! requests alone, the lowest normalised latency at twenty a minute. The report uses both everywhere. (Agent.xpu §6.1)

use super::lab::{Lab, Results};
use super::outcome::Read;
use super::plan::Plan;
use super::readings::{proactive_mean, proactive_norm, reactive_mean, utilisation};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use super::tuning::{Regime, Tuning};
use duet_scheduler::policy::PolicyName;
use duet_types::Tokens;

/// Those that are tuned.
const TUNED: [PolicyName; 3] = [PolicyName::IgpuBatching, PolicyName::CpuBatching, PolicyName::Serial];

type Tried = (Size, PolicyName, Regime, Tuning);

/// What a sweep is of: a load, and the figure whose lowest is best.
struct Judged {
    load: Load,
    figure: &'static str,
    read: Read,
}

impl Judged {
    fn of(regime: Regime) -> Self {
        match regime {
            Regime::Mixed => Self { load: Load::mixed(3.0, 6.0), figure: "reactive mean", read: reactive_mean },
            Regime::ProactiveOnly => {
                Self { load: Load::mixed(0.0, 20.0), figure: "normalised latency", read: proactive_norm }
            }
        }
    }
}

/// Runs the sweep and sets the lab's baselines.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let tried = tried(&lab.plan);
    let setting = |&(size, policy, regime, tuning): &Tried| Setting {
        simulation: tuning.apply(lab.simulation(size, policy)),
        load: Judged::of(regime).load,
    };
    let settings = tried.iter().map(|tried| (*tried, setting(tried))).collect();
    let results = lab.run("baselines", lab.plan.sweep_seeds, settings);
    let mut section = Section {
        id: "baselines",
        title: "The baselines at their best",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    for (size, policy, regime) in swept() {
        let of = |tried: &&Tried| (tried.0, tried.1, tried.2) == (size, policy, regime);
        let tried: Vec<Tried> = tried.iter().filter(of).copied().collect();
        let Some(best) = best(&results, &tried) else { continue };
        lab.tunings.choose(size, policy, regime, best.3);
        section.rows.push(row(&results, best));
        section.tables.push(table(&results, &tried, best));
    }
    section
}

const PROSE: [&str; 2] = [
    "A baseline is not to lose by its settings: rows of a chunk and members of a batch are swept, and the setting with the \
     lowest reactive mean at 3 + 6 requests a minute is the baseline's wherever persons wait. For proactive requests alone it \
     is that with the lowest normalised latency at 20 requests a minute. Ties go to the first.",
    "The serial baseline serves one request at a time, so it has no batch. Its partition between NPU and iGPU is the best \
     there is for each prompt, by construction: every product is divided so that both are predicted to end together.",
];

/// What is tuned, for what.
fn swept() -> Vec<(Size, PolicyName, Regime)> {
    let policies = Size::ALL.into_iter().flat_map(|size| TUNED.map(|policy| (size, policy)));
    policies.flat_map(|(size, policy)| Regime::ALL.map(|regime| (size, policy, regime))).collect()
}

/// All that is tried. Serial has one request at a time, whatever its batch.
fn tried(plan: &Plan) -> Vec<Tried> {
    let largest = [plan.batches.iter().copied().max().unwrap_or(1)];
    let mut tried = Vec::new();
    for (size, policy, regime) in swept() {
        let batches = if policy == PolicyName::Serial { &largest[..] } else { &plan.batches };
        for &chunk in &plan.chunks {
            tried.extend(batches.iter().map(|&batch| (size, policy, regime, Tuning { chunk: Tokens(chunk), batch })));
        }
    }
    tried
}

fn best(results: &Results<Tried>, tried: &[Tried]) -> Option<Tried> {
    let figure = |tried: &Tried| results.get(tried).read(Judged::of(tried.2).read).map(|estimate| estimate.value);
    let measured = tried.iter().filter_map(|tried| Some((figure(tried)?, *tried)));
    measured.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, tried)| tried)
}

fn row(results: &Results<Tried>, best: Tried) -> Row {
    let (size, policy, regime, tuning) = best;
    let (outcome, judged) = (results.get(&best), Judged::of(regime));
    Row::new("§6.1", format!("{size}, {}, {policy}", judged.load), format!("best {}", judged.figure), Unit::Seconds)
        .predicted(outcome.read(judged.read), outcome)
        .note(tuning.to_string())
}

fn table(results: &Results<Tried>, tried: &[Tried], best: Tried) -> Table {
    let (size, policy, regime, _) = best;
    let judged = Judged::of(regime);
    let head = ["chunk", "batch", judged.figure, "proactive mean, s", "busy, %"];
    let mut table = Table::new(format!("{size}, {policy}, {}; {} in seconds", judged.load, judged.figure), &head);
    for &one in tried {
        let outcome = results.get(&one);
        let value = |read| outcome.read(read).map(|estimate| estimate.value);
        let figure = Entry::number(value(judged.read), 3);
        table.push(vec![
            Entry::text(one.3.chunk.0),
            Entry::text(one.3.batch),
            if one == best { figure.chosen() } else { figure },
            Entry::number(value(proactive_mean), 2),
            Entry::number(value(utilisation(policy)), 0),
        ]);
    }
    table
}
