//! What padding and dropping come to, and which chunk to choose. (NPUMoE §5.6, §5.8)

use super::Study;
use super::assumptions::Assumptions;
use super::claims::{PHI_ON_ULTRA, TOLD};
use super::machines::{Machine, Place};
use super::plans::Plan;
use super::prefill::{Parts, Setting};
use super::schemes::Scheme;
use crate::report::outcome::Estimate;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Entry, Section, Table};

/// Slots that are padding, on average, in per cent.
const PADDING: f64 = 35.35;
/// The same over data sets. (§5.6)
const OVER_SETS: [f64; 2] = [31.7, 37.5];
/// Rows that are dropped, in per cent. (§5.6)
const DROPPED: [f64; 2] = [10.0, 20.0];
/// What padding costs: times the cycles, and per cent of the time.
const CYCLES: [f64; 2] = [1.25, 1.36];
const RUNTIME: [f64; 2] = [27.0, 29.0];

pub(super) fn section(study: &Study) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    for chunk in [256, 512, 1024] {
        rows.extend(rates(study, chunk));
    }
    for setting in TOLD {
        rows.extend(cost(study, setting));
    }
    Section {
        id: "padding",
        title: "Padding, dropped rows, and the chunk (§5.6, §5.8)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: vec![table(study)],
        ..Section::default()
    }
}

const PROSE: [&str; 3] = [
    "Slots that hold no row, of all slots of the plan of all; rows that an expert does not compute, of all. Capacities are those \
     that the expected load of one half of the prompts asks for, in whole tiles of 16 and three tiers; the rows are the other \
     half's.",
    "What padding costs is the time and the CPU's cycles of the same launches over those with as many slots as rows. On the CPU \
     padding is zeros that are written; the paper's 1.25 to 1.36 times the cycles need a CPU that computes padding.",
    "A larger chunk reads weights for more rows: that, more than padding, decides which is best. Rows of small chunks are spread \
     more unevenly, too.",
];

fn rates(study: &Study, chunk: u32) -> Vec<Row> {
    let Some(at) = study.sweep.at(PHI_ON_ULTRA) else { return Vec::new() };
    let sums = at.by(Plan::Resident, chunk).sums(at.stand_for());
    let row = |name: &str, figure, share: f64, paper: Paper| {
        let what = study.setting(&format!("{}, chunk {chunk}", PHI_ON_ULTRA.name()));
        Row::new(figure, what, format!("{name}, all"), Unit::Percent)
            .computed(Some(Estimate::exact(share)), study.prompts(4096))
            .paper(paper)
    };
    vec![
        row("slots that are padding", "§5.8", sums.padding(), Paper::Is(PADDING))
            .note(format!("{} to {} over data sets", OVER_SETS[0], OVER_SETS[1])),
        row("rows that are dropped", "§5.6", sums.drop_rate(), Paper::Between(DROPPED[0], DROPPED[1])),
    ]
}

/// All of it with its padding over without.
fn cost(study: &Study, setting: Setting) -> Vec<Row> {
    let Some(at) = study.sweep.at(PHI_ON_ULTRA) else { return Vec::new() };
    let Some(cell) = study.sweep.nominal().cell(PHI_ON_ULTRA, setting, Scheme::All) else { return Vec::new() };
    let soc = Machine::Ultra.soc();
    let world = at.world(&soc, Assumptions::NOMINAL);
    let experts = world.all_experts(Scheme::All, &at.by(Plan::Resident, setting.chunk).unpadded());
    let without = Parts { experts, ..cell.parts }.whole();
    let with = cell.parts.whole();
    let what = study.setting(&format!("{}, {}", PHI_ON_ULTRA.name(), setting.name()));
    let row = |name: &str, unit, value: f64, [low, high]: [f64; 2]| {
        Row::new("§5.8", what.clone(), name, unit)
            .computed(Some(Estimate::exact(value)), study.prompts(setting.prompt))
            .paper(Paper::Between(low, high))
    };
    let longer = (with.span.as_secs_f64() / without.span.as_secs_f64() - 1.0) * 100.0;
    let cycles = world.core_seconds(&with) / world.core_seconds(&without);
    vec![
        row("time that padding adds, all", Unit::Percent, longer, RUNTIME),
        row("CPU cycles with padding over without, all", Unit::Times, cycles, CYCLES),
    ]
}

/// Everywhere, by plan and chunk.
fn table(study: &Study) -> Table {
    let head = ["", "scheme", "chunk", "launches a chunk", "padding %", "dropped %", "on the CPU %"];
    let mut table = Table::new("What plans come to for the rows that were run on", &head);
    for place in Place::all() {
        let Some(at) = study.sweep.at(place) else { continue };
        for scheme in [Scheme::Base, Scheme::Tiers, Scheme::Groups, Scheme::All, Scheme::Duet] {
            for chunk in [256, 512, 1024] {
                let sums = at.by(scheme.plan(&Assumptions::NOMINAL), chunk).sums(at.stand_for());
                let mut row = vec![Entry::text(place.name()), Entry::text(scheme.name()), Entry::text(chunk)];
                let shares = [sums.launches / sums.chunks, sums.padding(), sums.drop_rate(), sums.cpu_share()];
                row.extend(shares.map(|share| Entry::number(Some(share), 1)));
                table.push(row);
            }
        }
    }
    table
}
