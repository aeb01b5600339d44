//! The scheduler's limits: which of them were tuned, and which are others than those that serve.
//!
//! Both sides are read from the configurations themselves: the simulation's as it is run here, and the engine's with its
//! own defaults. A limit that differs has a reason here, and one that does not is not shown. Each that differs is also run
//! as it serves, alone and with the others, under both policies.

use super::lab::{Lab, Results};
use super::outcome::{Outcome, Read};
use super::policies::OURS;
use super::readings::{proactive_mean, reactive_mean};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use duet_engine::EngineConfig;
use duet_scheduler::Limits;
use duet_scheduler::policy::PolicyName;
use duet_sim::{Simulation, SocProfile};
use duet_types::{Nanos, Tokens};

/// Where the tuned limit was tried.
const LOAD: Load = Load::mixed(3.0, 6.0);

/// Values of `stretch` that are tried, beside the one that is used.
const STRETCHES: [f64; 5] = [0.0, 0.05, 0.1, 0.2, 0.4];

/// What is run, at the load above.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tried {
    /// duet with this `stretch`.
    Stretch(Size, f64),
    /// A policy, with some limits as they serve.
    Served(Size, PolicyName, Served),
}

/// Which limits are as they serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// None.
    Nothing,
    /// This one of [`DIFFERING`].
    One(usize),
    /// All.
    All,
}

/// Runs the sweep.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let tried = |lab: &Lab<'_>, size: Size| {
        STRETCHES.map(|stretch| {
            let mut simulation = lab.simulation(size, PolicyName::Duet);
            simulation.config.limits.stretch = stretch;
            (Tried::Stretch(size, stretch), Setting { simulation, load: LOAD })
        })
    };
    let mut settings: Vec<_> = Size::ALL.into_iter().flat_map(|size| tried(lab, size)).collect();
    settings.extend(Size::ALL.into_iter().flat_map(|size| as_served(lab, size)));
    let results = lab.run("limits", lab.plan.sweep_seeds, settings);
    let mut tables = Vec::new();
    for size in Size::ALL {
        let simulated = simulated(&lab.soc, size);
        tables.push(differing(size, &simulated, &serving(&lab.soc, size)));
        tables.push(served(&results, size));
        tables.push(swept(&results, size, simulated.stretch));
    }
    let rows =
        Size::ALL.into_iter().flat_map(|size| rows(&results, size).into_iter().chain(served_rows(&results, size)));
    Section {
        id: "limits",
        title: "Limits: tuned, and other than in serving",
        prose: PROSE.map(str::to_owned).into(),
        rows: rows.collect(),
        tables,
        plots: Vec::new(),
    }
}

/// The limits of the simulation, before anything is tuned.
fn simulated(soc: &SocProfile, size: Size) -> Limits {
    Simulation::on_soc(soc, &size.heg(), PolicyName::Duet).config.limits
}

/// The limits that would serve on the same machine: as many graphs fit by the same rule.
fn serving(soc: &SocProfile, size: Size) -> Limits {
    let limits = EngineConfig::default().limits(Tokens(soc.chunk.context.value as u32));
    Limits { graphs: soc.graphs_held(&size.heg()).min(limits.graphs), ..limits }
}

/// Both policies with each limit that differs, and with all of them, as they serve.
fn as_served(lab: &Lab<'_>, size: Size) -> Vec<(Tried, Setting)> {
    let serving = serving(&lab.soc, size);
    let all = which(&simulated(&lab.soc, size), &serving);
    let single = all.iter().step_by(lab.plan.constant_of).map(|&one| (Served::One(one), vec![one]));
    let sets = [(Served::Nothing, Vec::new())].into_iter().chain(single);
    let sets: Vec<_> = sets.chain([(Served::All, all.clone())]).collect();
    let of = |policy: PolicyName| {
        sets.iter().map(move |(served, limits)| {
            let mut simulation = lab.simulation(size, policy);
            limits.iter().for_each(|&limit| (DIFFERING[limit].set)(&mut simulation.config.limits, &serving));
            (Tried::Served(size, policy, *served), Setting { simulation, load: LOAD })
        })
    };
    OURS.into_iter().flat_map(of).collect()
}

/// Which of [`DIFFERING`] differ.
fn which(simulated: &Limits, serving: &Limits) -> Vec<usize> {
    (0..DIFFERING.len()).filter(|&at| (DIFFERING[at].value)(simulated) != (DIFFERING[at].value)(serving)).collect()
}

const PROSE: [&str; 3] = [
    "The simulation is run with the limits of the paper's machine, and `duet serve` has others by default. A limit that is \
     another here is in the first table, with the reason.",
    "What serves with its defaults would come to the figures of the second table on this machine: each of these limits is set \
     as it serves, one at a time, then all together. agent-xpu has its own tuned chunk and age otherwise.",
    "`stretch` is how much longer background riders may make a reactive pass under duet. It is the one limit that was chosen \
     by what came out: of the values below, at this load, with these traces. So duet's figures are those of a policy tuned \
     on the traces that it is judged by; the rows beside the chosen one say what it would have been otherwise.",
];

/// A limit, as both have it, and why they differ.
struct Differing {
    name: &'static str,
    value: fn(&Limits) -> String,
    /// Makes the first as the second.
    set: fn(&mut Limits, &Limits),
    why: &'static str,
}

const DIFFERING: [Differing; 11] = [
    Differing {
        name: "rows of a chunk",
        value: |limits| limits.chunk.0.to_string(),
        set: |to, from| to.chunk = from.chunk,
        why: "the profile's, which is the paper's",
    },
    Differing {
        name: "rows of a prefill buffer",
        value: |limits| limits.prefill_rows.0.to_string(),
        set: |to, from| to.prefill_rows = from.prefill_rows,
        why: "the paper reads whole prompts, layer by layer; on cores prompts are read in chunks",
    },
    Differing {
        name: "members of a batch",
        value: |limits| limits.batch.to_string(),
        set: |to, from| to.batch = from.batch,
        why: "the profile's",
    },
    Differing {
        name: "longest preemption",
        value: |limits| seconds(limits.preempt),
        set: |to, from| to.preempt = from.preempt,
        why: "the paper's bound; a kernel of cores can be cut shorter than one of an NPU",
    },
    Differing {
        name: "longest stop of a stream",
        value: |limits| seconds(limits.decode_stall),
        set: |to, from| to.decode_stall = from.decode_stall,
        why: "a token of the 8B model alone takes 120 ms on this machine",
    },
    Differing {
        name: "age of overdue work",
        value: |limits| seconds(limits.age),
        set: |to, from| to.age = from.age,
        why: "",
    },
    Differing {
        name: "reactive overtaking",
        value: |limits| seconds(limits.overtaking),
        set: |to, from| to.overtaking = from.overtaking,
        why: "",
    },
    Differing {
        name: "share of overdue work",
        value: |limits| limits.overdue_share.to_string(),
        set: |to, from| to.overdue_share = from.overdue_share,
        why: "",
    },
    Differing {
        name: "stretch",
        value: |limits| limits.stretch.to_string(),
        set: |to, from| to.stretch = from.stretch,
        why: "tuned on this machine's traffic, as below; serving keeps the value from before",
    },
    Differing {
        name: "expiry of an unused graph",
        value: |limits| seconds(limits.graph_expiry),
        set: |to, from| to.graph_expiry = from.graph_expiry,
        why: "prompts wait for longer than two seconds here: a graph that expires before its prompt is read was compiled for \
              nothing. Serving would reclaim most of them",
    },
    Differing {
        name: "graphs at once",
        value: |limits| limits.graphs.to_string(),
        set: |to, from| to.graphs = from.graphs,
        why: "the profile's at most, as memory has room for them",
    },
];

fn seconds(time: Nanos) -> String {
    format!("{} s", time.as_secs_f64())
}

fn differing(size: Size, simulated: &Limits, serving: &Limits) -> Table {
    let caption = format!("{size}: limits that differ from serving");
    let mut table = Table::new(caption, &["limit", "here", "serving", "why"]);
    for limit in which(simulated, serving).into_iter().map(|at| &DIFFERING[at]) {
        let [here, there] = [simulated, serving].map(limit.value);
        table.push(vec![Entry::text(limit.name), Entry::text(here), Entry::text(there), Entry::text(limit.why)]);
    }
    table
}

/// What was run of [`Served`], with the figures of both classes.
fn of_served(results: &Results<Tried>, size: Size) -> impl Iterator<Item = (PolicyName, Served, &Outcome)> {
    let served = results.names().filter_map(move |tried| match tried {
        &Tried::Served(of, policy, served) if of == size => Some((policy, served)),
        _ => None,
    });
    served.map(move |(policy, served)| (policy, served, results.get(&Tried::Served(size, policy, served))))
}

fn served(results: &Results<Tried>, size: Size) -> Table {
    let head = ["policy", "as in serving", "reactive mean, s", "proactive mean, s"];
    let mut table = Table::new(format!("{size}, {LOAD}, by which limits are as in serving"), &head);
    for (policy, served, outcome) in of_served(results, size) {
        let value = |read: Read| outcome.read(read).map(|estimate| estimate.value);
        table.push(vec![
            Entry::text(policy),
            Entry::text(served.name()),
            Entry::number(value(reactive_mean), 3),
            Entry::number(value(proactive_mean), 2),
        ]);
    }
    table
}

fn served_rows(results: &Results<Tried>, size: Size) -> Vec<Row> {
    let rows = of_served(results, size).flat_map(|(policy, served, outcome)| {
        CLASSES.map(|(quantity, read)| {
            let setting = format!("{size}, {LOAD}, {policy}, as in serving: {}", served.name());
            Row::new("limits", setting, quantity, Unit::Seconds).predicted(outcome.read(read), outcome)
        })
    });
    rows.collect()
}

impl Served {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::One(at) => DIFFERING[at].name,
            Self::All => "all of them",
        }
    }
}

const CLASSES: [(&str, Read); 2] = [("reactive mean", reactive_mean), ("proactive mean", proactive_mean)];

fn swept(results: &Results<Tried>, size: Size, chosen: f64) -> Table {
    let head = ["stretch", "reactive mean, s", "proactive mean, s"];
    let mut table = Table::new(format!("{size}, {LOAD}, duet, by how much riders may take"), &head);
    for stretch in STRETCHES {
        let outcome = results.get(&Tried::Stretch(size, stretch));
        let value = |read: Read| outcome.read(read).map(|estimate| estimate.value);
        let name = Entry::text(stretch);
        table.push(vec![
            if stretch == chosen { name.chosen() } else { name },
            Entry::number(value(reactive_mean), 3),
            Entry::number(value(proactive_mean), 2),
        ]);
    }
    table
}

fn rows(results: &Results<Tried>, size: Size) -> Vec<Row> {
    let row = |stretch: f64, (quantity, read): (&str, Read)| {
        let outcome = results.get(&Tried::Stretch(size, stretch));
        Row::new("limits", format!("{size}, {LOAD}, duet, stretch {stretch}"), quantity, Unit::Seconds)
            .predicted(outcome.read(read), outcome)
    };
    STRETCHES.into_iter().flat_map(|stretch| CLASSES.map(|class| row(stretch, class))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is changed on either side has to be told.
    #[test]
    fn every_limit_that_differs_is_shown_with_a_reason() {
        let soc = duet_sim::soc::built_in().next().unwrap();
        let (simulated, serving) = (simulated(&soc, Size::Small), serving(&soc, Size::Small));
        for limit in &DIFFERING {
            let differs = (limit.value)(&simulated) != (limit.value)(&serving);
            assert!(!differs || !limit.why.is_empty(), "{} differs and nobody says why", limit.name);
        }
        // With all of them set alike nothing is left that differs.
        let mut alike = serving;
        which(&simulated, &serving).into_iter().for_each(|at| (DIFFERING[at].set)(&mut alike, &simulated));
        assert_eq!(alike, simulated);
        let shown = differing(Size::Small, &simulated, &serving).rows;
        assert!(shown.iter().any(|row| row[0] == Entry::text("expiry of an unused graph")), "{shown:?}");
    }

    #[test]
    fn the_value_that_is_used_is_among_those_that_were_tried() {
        let soc = duet_sim::soc::built_in().next().unwrap();
        assert!(STRETCHES.contains(&simulated(&soc, Size::Small).stretch));
    }
}
