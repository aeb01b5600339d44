//! One block of experts, part by part. (NPUMoE §5.7, Tables 4 and 5; A.2)

use super::Study;
use super::assumptions::Assumptions;
use super::claims::{PHI_ON_ULTRA, TOLD, places};
use super::costs::{Costs, Unit};
use super::machines::{Machine, Place};
use super::prefill::Setting;
use super::schemes::Scheme;
use super::sweep::{Cell, View};
use super::targets::Target;
use super::usage::Usage;
use crate::report::row::{Paper, Row, Unit as Of};
use crate::report::section::{Entry, Section, Table};
use crate::table_5::TABLE_5;

/// A part of a block in all over that in a baseline, in per cent more or less.
struct Change {
    name: &'static str,
    read: fn(&Usage) -> f64,
    than: &'static [Scheme],
    paper: [f64; 2],
}

const ON_CPU: &[Scheme] = &[Scheme::Cpu, Scheme::DenseOnly];
const CHANGES: [Change; 4] = [
    Change {
        name: "experts' products",
        read: |usage| usage.experts().as_secs_f64(),
        than: ON_CPU,
        paper: [-50.0, -40.0],
    },
    Change { name: "scatter", read: |usage| usage.scatter.as_secs_f64(), than: ON_CPU, paper: [-15.0, -10.0] },
    Change { name: "the whole block", read: |usage| usage.span.as_secs_f64(), than: ON_CPU, paper: [-10.0, -5.0] },
    Change {
        name: "the whole block",
        read: |usage| usage.span.as_secs_f64(),
        than: &[Scheme::Naive],
        paper: [-54.0, -54.0],
    },
];

/// A run of Qwen3-MoE: CoreML's and ANEMLL's over ours.
const RUN: [(&str, Read, [f64; 2]); 6] = [
    ("wall", |cell| cell.prefill.seconds, [1.139 / 0.572, 1.144 / 0.572]),
    ("experts", |cell| cell.parts.experts.span.as_secs_f64(), [0.978 / 0.464, 0.988 / 0.464]),
    ("attention", |cell| cell.parts.attention.span.as_secs_f64(), [0.095 / 0.086, 0.090 / 0.086]),
    ("energy", |cell| cell.prefill.energy.joules(), [12.67 / 3.80, 12.13 / 3.80]),
    ("the CPU's energy", |cell| cell.prefill.energy.cpu, [9.66 / 1.23, 8.87 / 1.23]),
    ("communication", |cell| cell.prefill.energy.memory, [3.01 / 1.37, 2.99 / 1.37]),
];

type Read = fn(&Cell) -> f64;

pub(super) fn section(study: &Study) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    for setting in &TOLD[..2] {
        for change in &CHANGES {
            rows.extend(change.than.iter().map(|than| change_row(study, *setting, change, *than)));
        }
    }
    for place in places(Target::Qwen3) {
        for run in &RUN {
            rows.extend(
                [Scheme::Cpu, Scheme::DenseOnly]
                    .iter()
                    .zip(run.2)
                    .map(|(more, paper)| run_row(study, place, (run.0, run.1), *more, paper)),
            );
        }
    }
    Section {
        id: "block",
        title: "One block of experts (§5.7, A.2)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: vec![parts(study), table_5()],
        ..Section::default()
    }
}

const PROSE: [&str; 3] = [
    "A layer's experts with norm, choice, gathering and scattering. The paper's figures do not fit each other: experts' products \
     that take 40 to 50 % less and scattering that takes 10 to 15 % less leave 5 to 10 % less only where most of the block is \
     neither, and its prompts are then 1.3 to 2 times as fast. Gathering and scattering move the same rows whoever computes; all \
     moves fewer because it drops some.",
    "The run of Qwen3-MoE in A.2 is of a prompt and chunk that the paper does not tell; 1024 in chunks of 512 here. Its CoreML \
     takes nothing of the ANE, so that it stands beside the CPU, ANEMLL beside dense-only.",
    "Table 5 is no prediction: the NPU's constants are a fit of it (by others, of the grouped values). What the fit misses are \
     graphs of one expert, 0.31 and 0.23 ms a token at capacities of 32 and 64: a launch of one expert takes 0.9 and 1.8 ms \
     there, so that it grows with the rows; the profile has one figure for both, and an interval over them.",
];

fn change_row(study: &Study, setting: Setting, change: &Change, than: Scheme) -> Row {
    let read = |view: View<'_>| {
        let of = |scheme| Some((change.read)(&view.cell(PHI_ON_ULTRA, setting, scheme)?.parts.experts));
        Some((of(Scheme::All)? / of(than)? - 1.0) * 100.0)
    };
    let what = study.setting(&format!("{}, {}", PHI_ON_ULTRA.name(), setting.name()));
    let [low, high] = change.paper;
    let paper = if low < high { Paper::Between(low, high) } else { Paper::Is(low) };
    Row::new("§5.7", what, format!("{}, all over {}, change", change.name, than.name()), Of::Percent)
        .computed(study.sweep.estimate(read), study.prompts(setting.prompt))
        .paper(paper)
}

fn run_row(study: &Study, place: Place, (name, of): (&str, Read), more: Scheme, paper: f64) -> Row {
    let read =
        |view: View<'_>| Some(of(view.cell(place, TOLD[1], more)?) / of(view.cell(place, TOLD[1], Scheme::All)?));
    let what = study.setting(&format!("{}, {}", place.name(), TOLD[1].name()));
    let hundredths = (paper * 100.0).round() / 100.0;
    Row::new("A.2", what, format!("{} over all, {name}", more.name()), Of::Times)
        .computed(study.sweep.estimate(read), study.prompts(TOLD[1].prompt))
        .paper(Paper::Is(hundredths))
}

/// Milliseconds of a layer and chunk.
fn parts(study: &Study) -> Table {
    let head = [
        "",
        "scheme",
        "setting",
        "norm, choice",
        "gather",
        "launches",
        "graphs",
        "CPU",
        "scatter",
        "whole",
        "NPU useful %",
    ];
    let mut table = Table::new("Milliseconds of a chunk in a layer", &head);
    for place in Place::all() {
        for setting in &TOLD[..2] {
            for scheme in &Scheme::ALL[..8] {
                let Some(cell) = study.sweep.nominal().cell(place, *setting, *scheme) else { continue };
                let usage = cell.parts.experts;
                let chunks = (cell.prompts as u32 * setting.prompt.div_ceil(setting.chunk)) as f64;
                let layers = place.target.sizes().layers as f64;
                let ms = |time: duet_types::Nanos| Entry::number(Some(time.as_millis_f64() / chunks / layers), 2);
                let mut row = vec![Entry::text(place.name()), Entry::text(scheme.name()), Entry::text(setting.name())];
                row.extend(
                    [usage.rows, usage.gather, usage.launch, usage.graph, usage.products, usage.scatter].map(ms),
                );
                row.push(ms(usage.span));
                row.push(Entry::number(usage.macs.useful_on_npu(), 1));
                table.push(row);
            }
        }
    }
    table
}

fn table_5() -> Table {
    let head = ["experts a group", "capacity", "ms a token, Table 5", "ms a token, the profile"];
    let mut table =
        Table::new("What the profile's NPU was fitted to: a block of Phi-3.5-MoE whose slots are full", &head);
    let costs = Costs::new(&Machine::Ultra.soc(), &Assumptions::NOMINAL, Target::PhiMoe);
    for (group, capacity, paper) in TABLE_5 {
        let launch = costs.launch(Unit::Npu) + costs.experts(Unit::Npu, group, capacity);
        // 16 experts, two a token.
        let ms = launch.as_millis_f64() * f64::from(16 / group) / f64::from(8 * capacity);
        table.push(vec![
            Entry::text(group),
            Entry::text(capacity),
            Entry::number(Some(paper), 2),
            Entry::number(Some(ms), 2),
        ]);
    }
    table
}
