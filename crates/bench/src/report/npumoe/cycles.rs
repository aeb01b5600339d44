//! Cycles of the CPU. (NPUMoE §5.5, Figure 16)

use super::Study;
use super::claims::{Measure, PHI_ON_ULTRA, Range, Ratio, TOLD};
use super::machines::Place;
use super::prefill::Setting;
use super::schemes::Scheme;
use crate::report::row::Row;
use crate::report::section::{Entry, Section, Table};

/// Prompts of 1024 in chunks of 256 and of 512: of CPU, naïve and dense-only.
const SHORT: [[f64; 3]; 2] = [[3.78, 3.61, 2.98], [2.45, 3.20, 1.78]];

pub(super) fn section(study: &Study) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    let range = |figure, over: String, settings: &[Setting], paper: [f64; 2]| {
        let (measure, more, less) = (Measure::Cycles, &Scheme::BASELINES, Scheme::All);
        let paper = paper.map(Some);
        Range { figure, measure, over, places: &[PHI_ON_ULTRA], settings, more, less, paper }.rows(study)
    };
    let phi = |what: &str| format!("{}, {what}", PHI_ON_ULTRA.name());
    rows.extend(range("§5.2", phi("all settings of the paper"), &TOLD, [1.78, 5.54]));
    for (setting, paper) in TOLD.into_iter().zip(SHORT) {
        rows.extend(Scheme::BASELINES.into_iter().zip(paper).map(|(more, paper)| {
            let ratio = Ratio { measure: Measure::Cycles, place: PHI_ON_ULTRA, setting, more, less: Scheme::All };
            ratio.row(study, "§5.5", Some(paper))
        }));
    }
    let long = |chunk| Setting { prompt: 4096, chunk };
    for (chunk, paper) in [(256, [2.09, 3.70]), (512, [2.21, 5.54])] {
        rows.extend(range("§5.5", phi(&long(chunk).name()), &[long(chunk)], paper));
    }
    rows.extend(range("§5.8", phi(&long(1024).name()), &[long(1024)], [2.21, 5.54]));
    Section {
        id: "cycles",
        title: "CPU cycles (§5.5, Figure 16)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: vec![table(study)],
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "Cores times seconds: products keep all 24 (or 12) cores busy, moving rows and launching one, and waiting for the NPU none. \
     Apple's matrix units are fed by one core a cluster, though, and a thread that waits may spin: with both, which is one of \
     the readings in the sweep, the ratios come down to the paper's size. So these ratios say what is counted more than what \
     is offloaded; core-seconds are in the table.",
    "The paper's naïve takes more cycles than its CPU baseline does in some settings: only graphs that fall back and are converted \
     for it can do that. The paper gives 2.21 to 5.54 to chunks of 512 in §5.5 and of 1024 in §5.8; both stand here.",
];

fn table(study: &Study) -> Table {
    let names: Vec<&str> = ["", "prompt", "chunk"].into_iter().chain(Scheme::ALL.map(Scheme::name)).collect();
    let mut table = Table::new("Core-seconds of a prompt", &names);
    for place in Place::all() {
        for setting in study.sweep.settings() {
            let cores = |scheme| {
                let cell = study.sweep.nominal().cell(place, setting, scheme);
                Entry::number(cell.map(|cell| cell.prefill.core_seconds), 1)
            };
            let mut row = vec![Entry::text(place.name()), Entry::text(setting.prompt), Entry::text(setting.chunk)];
            row.extend(Scheme::ALL.map(cores));
            table.push(row);
        }
    }
    table
}
