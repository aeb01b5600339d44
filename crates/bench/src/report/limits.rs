//! The scheduler's limits: which of them were tuned, and which are others than those that serve.
//!
//! Both sides are read from the configurations themselves: the simulation's as it is run here, and the engine's with its
//! own defaults. A limit that differs has a reason here, and one that does not is not shown.

use super::lab::{Lab, Results};
use super::outcome::Read;
use super::readings::{proactive_mean, reactive_mean};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use duet_engine::EngineConfig;
use duet_scheduler::Limits;
use duet_scheduler::policy::PolicyName;
use duet_types::{Nanos, Tokens};

/// Where the tuned limit was tried.
const LOAD: Load = Load::mixed(3.0, 6.0);

/// Values of `stretch` that are tried, beside the one that is used.
const STRETCHES: [f64; 5] = [0.0, 0.05, 0.1, 0.2, 0.4];

type Tried = (Size, f64);

/// Runs the sweep.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let tried = |lab: &Lab<'_>, size: Size| {
        STRETCHES.map(|stretch| {
            let mut simulation = lab.simulation(size, PolicyName::Duet);
            simulation.config.limits.stretch = stretch;
            ((size, stretch), Setting { simulation, load: LOAD })
        })
    };
    let settings = Size::ALL.into_iter().flat_map(|size| tried(lab, size)).collect();
    let results = lab.run("limits", lab.plan.sweep_seeds, settings);
    let simulated = lab.simulation(Size::Small, PolicyName::Duet).config.limits;
    let serving = EngineConfig::default().limits(Tokens(lab.soc.chunk.context.value as u32));
    let mut tables = vec![differing(&simulated, &serving)];
    tables.extend(Size::ALL.map(|size| swept(&results, size, simulated.stretch)));
    Section {
        id: "limits",
        title: "Limits: tuned, and other than in serving",
        prose: PROSE.map(str::to_owned).into(),
        rows: Size::ALL.into_iter().flat_map(|size| rows(&results, size)).collect(),
        tables,
        plots: Vec::new(),
    }
}

const PROSE: [&str; 2] = [
    "The simulation is run with the limits of the paper's machine, and `duet serve` has others by default. A limit that is \
     another here is in the first table, with the reason; what serves with its defaults would not come to the figures of \
     this page on this machine.",
    "`stretch` is how much longer background riders may make a reactive pass under duet. It is the one limit that was chosen \
     by what came out: of the values below, at this load, with these traces. So duet's figures are those of a policy tuned \
     on the traces that it is judged by; the rows beside the chosen one say what it would have been otherwise.",
];

/// A limit, as both have it, and why they differ.
struct Differing {
    name: &'static str,
    value: fn(&Limits) -> String,
    why: &'static str,
}

const DIFFERING: [Differing; 11] = [
    Differing {
        name: "rows of a chunk",
        value: |limits| limits.chunk.0.to_string(),
        why: "the profile's, which is the paper's",
    },
    Differing {
        name: "rows of a prefill buffer",
        value: |limits| limits.prefill_rows.0.to_string(),
        why: "the paper reads whole prompts, layer by layer; on cores prompts are read in chunks",
    },
    Differing { name: "members of a batch", value: |limits| limits.batch.to_string(), why: "the profile's" },
    Differing {
        name: "longest preemption",
        value: |limits| seconds(limits.preempt),
        why: "the paper's bound; a kernel of cores can be cut shorter than one of an NPU",
    },
    Differing {
        name: "longest stop of a stream",
        value: |limits| seconds(limits.decode_stall),
        why: "a token of the 8B model alone takes 120 ms on this machine",
    },
    Differing { name: "age of overdue work", value: |limits| seconds(limits.age), why: "" },
    Differing { name: "reactive overtaking", value: |limits| seconds(limits.overtaking), why: "" },
    Differing { name: "share of overdue work", value: |limits| limits.overdue_share.to_string(), why: "" },
    Differing {
        name: "stretch",
        value: |limits| limits.stretch.to_string(),
        why: "tuned on this machine's traffic, as below; serving keeps the value from before",
    },
    Differing {
        name: "expiry of an unused graph",
        value: |limits| seconds(limits.graph_expiry),
        why: "prompts wait for longer than two seconds here: a graph that expires before its prompt is read was compiled for \
              nothing. Serving would reclaim most of them",
    },
    Differing {
        name: "graphs at once",
        value: |limits| limits.graphs.to_string(),
        why: "the profile's; in serving as many as memory has room for",
    },
];

fn seconds(time: Nanos) -> String {
    format!("{} s", time.as_secs_f64())
}

fn differing(simulated: &Limits, serving: &Limits) -> Table {
    let mut table = Table::new("Limits that differ from serving", &["limit", "here", "serving", "why"]);
    for limit in &DIFFERING {
        let [here, there] = [simulated, serving].map(limit.value);
        if here != there {
            table.push(vec![Entry::text(limit.name), Entry::text(here), Entry::text(there), Entry::text(limit.why)]);
        }
    }
    table
}

fn swept(results: &Results<Tried>, size: Size, chosen: f64) -> Table {
    let head = ["stretch", "reactive mean, s", "proactive mean, s"];
    let mut table = Table::new(format!("{size}, {LOAD}, duet, by how much riders may take"), &head);
    for stretch in STRETCHES {
        let outcome = results.get(&(size, stretch));
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
    let classes: [(&str, Read); 2] = [("reactive mean", reactive_mean), ("proactive mean", proactive_mean)];
    let row = |stretch: f64, (quantity, read): (&str, Read)| {
        let outcome = results.get(&(size, stretch));
        Row::new("limits", format!("{size}, {LOAD}, duet, stretch {stretch}"), quantity, Unit::Seconds)
            .predicted(outcome.read(read), outcome)
    };
    STRETCHES.into_iter().flat_map(|stretch| classes.map(|class| row(stretch, class))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is changed on either side has to be told.
    #[test]
    fn every_limit_that_differs_is_shown_with_a_reason() {
        let soc = duet_sim::soc::built_in().next().unwrap();
        let simulation = duet_sim::Simulation::on_soc(&soc, &Size::Small.heg(), PolicyName::Duet);
        let simulated = simulation.config.limits;
        let serving = EngineConfig::default().limits(Tokens(soc.chunk.context.value as u32));
        for limit in &DIFFERING {
            let differs = (limit.value)(&simulated) != (limit.value)(&serving);
            assert!(!differs || !limit.why.is_empty(), "{} differs and nobody says why", limit.name);
        }
        // With all of them set alike nothing is left that differs.
        let Limits {
            chunk,
            prefill_rows,
            batch,
            preempt,
            decode_stall,
            age,
            overtaking,
            overdue_share,
            stretch,
            graph_expiry,
            ..
        } = simulated;
        let alike = Limits {
            chunk,
            prefill_rows,
            batch,
            preempt,
            decode_stall,
            age,
            overtaking,
            overdue_share,
            stretch,
            graph_expiry,
            graphs: simulated.graphs,
            ..serving
        };
        assert_eq!(alike, simulated);
        let shown = differing(&simulated, &serving).rows;
        assert!(shown.iter().any(|row| row[0] == Entry::text("expiry of an unused graph")), "{shown:?}");
    }

    #[test]
    fn the_value_that_is_used_is_among_those_that_were_tried() {
        let soc = duet_sim::soc::built_in().next().unwrap();
        let simulation = duet_sim::Simulation::on_soc(&soc, &Size::Small.heg(), PolicyName::Duet);
        assert!(STRETCHES.contains(&simulation.config.limits.stretch));
    }
}
