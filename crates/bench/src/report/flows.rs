//! Flows of several turns: what keeping keys and values between turns gives, and what little memory takes.

use super::lab::{Lab, Results};
use super::outcome::Read;
use super::policies::COMPARED;
use super::readings::{proactive_mean, reactive_mean, reactive_ttft, reused, spilled};
use super::row::{Row, Unit};
use super::section::{Entry, Section, Table};
use super::setting::{Load, Setting, Size};
use duet_scheduler::MemoryLimits;
use duet_scheduler::policy::PolicyName;
use duet_types::Tokens;

/// About three reactive and six proactive turns a minute.
const LOAD: Load = Load::flows(0.75, 1.5);

/// A model, the positions that memory holds (absent: all), and who decides.
type Point = (Size, Option<u32>, PolicyName);

/// A figure, by what it is called and how.
type Figure = (&'static str, Unit, Read, usize);

const FIGURES: [Figure; 5] = [
    ("turn of a reactive flow, mean", Unit::Seconds, reactive_mean, 2),
    ("first token of a reactive turn, mean", Unit::Seconds, reactive_ttft, 2),
    ("turn of a proactive flow, mean", Unit::Seconds, proactive_mean, 2),
    ("pages spilled", Unit::Count, spilled, 0),
    ("prompt tokens reused", Unit::Percent, reused, 1),
];

/// Runs it.
pub(crate) fn section(lab: &mut Lab<'_>) -> Section {
    let setting = |&(size, memory, policy): &Point| {
        let mut simulation = lab.simulation(size, policy);
        simulation.config.memory = limits(memory);
        Setting { simulation, load: LOAD }
    };
    let memories = &lab.plan.memories;
    let points = Size::ALL
        .into_iter()
        .flat_map(|size| memories.iter().flat_map(move |&memory| COMPARED.map(|policy| (size, memory, policy))));
    let settings = points.map(|point| (point, setting(&point))).collect();
    let results = lab.run("flows", lab.plan.seeds, settings);
    Section {
        id: "flows",
        title: "Flows of several turns, and little memory",
        prose: PROSE.map(str::to_owned).into(),
        rows: results.names().flat_map(|&point| rows(&results, point)).collect(),
        tables: Size::ALL.map(|size| table(&results, size)).into(),
        plots: Vec::new(),
    }
}

const PROSE: [&str; 2] = [
    "Elsewhere on this page every request stands for itself. Here each begins a flow of two to six turns: when an answer is \
     there, a person takes 15 s on average to come again, a tool of an agent 5 s, and the prompt of the next turn is all that \
     was said with something new behind it, until the context is full. How many turns there are and how long gaps last is \
     assumed; nobody has published it for such flows. The paper assumes that memory never runs out, and has no figure here.",
    "Keys and values of ended turns are kept, for every policy by the same memory manager, and what there is no room for goes \
     to disk, at the rate at which the machine's profile lets graphs be loaded, and is read back. Memory is for as many \
     positions as the tables say. The disk does not run full.",
];

/// Pages of 64 positions, as the engine's.
fn limits(memory: Option<u32>) -> MemoryLimits {
    let all = MemoryLimits::UNBOUNDED;
    memory.map_or(all, |positions| MemoryLimits {
        pages: all.pages_of(Tokens(positions)),
        disk_pages: all.pages,
        ..all
    })
}

fn named(memory: Option<u32>) -> String {
    memory.map_or("memory for all".to_owned(), |positions| format!("memory for {positions} positions"))
}

fn rows(results: &Results<Point>, point: Point) -> Vec<Row> {
    let (size, memory, policy) = point;
    let outcome = results.get(&point);
    let row = |(quantity, unit, read, _): Figure| {
        Row::new("flows", format!("{size}, {LOAD}, {}, {policy}", named(memory)), quantity, unit)
            .predicted(outcome.read(read), outcome)
    };
    FIGURES.map(row).into()
}

fn table(results: &Results<Point>, size: Size) -> Table {
    let mut table = Table::new(format!("{size}, {LOAD}"), &["memory", "policy"]);
    table.head.extend(FIGURES.map(|(name, unit, ..)| match unit {
        Unit::Count => name.to_owned(),
        unit => format!("{name},{}", unit.suffix()),
    }));
    for &point in results.names().filter(|point| point.0 == size) {
        let outcome = results.get(&point);
        let value =
            |(_, _, read, decimals): Figure| Entry::number(outcome.read(read).map(|estimate| estimate.value), decimals);
        table.push([Entry::text(named(point.1)), Entry::text(point.2)].into_iter().chain(FIGURES.map(value)).collect());
    }
    table
}
