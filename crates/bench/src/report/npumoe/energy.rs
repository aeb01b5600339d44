//! Energy for each token of the prompt. (NPUMoE §5.2, §5.4, Figure 15)

use super::Study;
use super::claims::{Measure, PHI_ON_ULTRA, Range, Ratio, TOLD, places};
use super::machines::Place;
use super::prefill::Setting;
use super::schemes::Scheme;
use super::sweep::View;
use super::targets::Target;
use crate::plot::{Bar, bars};
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Entry, Plot, Section, Table};

/// Over all settings: of CPU, naïve and dense-only.
const ALL: [[f64; 2]; 3] = [[1.81, 3.19], [4.71, 7.37], [1.86, 3.43]];
/// Prompts of 1024 in chunks of 512.
const SHORT: [f64; 3] = [3.19, 7.37, 3.43];
/// Prompts of 4096.
const LONG: [[f64; 2]; 3] = [[1.81, 2.30], [4.71, 5.23], [1.86, 2.49]];
/// Ours, in millijoules a token.
const OURS: [f64; 2] = [52.0, 137.0];
/// What naïve takes more for communication.
const COMMUNICATION: [f64; 2] = [4.44, 5.69];
const OTHERS: [(Target, [f64; 2]); 2] = [(Target::PhiTiny, [1.70, 2.68]), (Target::Qwen3, [1.84, 3.89])];

pub(super) fn section(study: &Study) -> Section {
    let mut rows = Vec::new();
    let all = |figure, over: String, places: &[Place], settings: &[Setting], more: &[Scheme], paper: [f64; 2]| {
        let (measure, less, paper) = (Measure::Energy, Scheme::All, paper.map(Some));
        Range { figure, measure, over, places, settings, more, less, paper }.rows(study)
    };
    let phi = |what: &str| format!("{}, {what}", PHI_ON_ULTRA.name());
    for (scheme, paper) in Scheme::BASELINES.iter().zip(ALL) {
        rows.extend(all("§5.4", phi("all settings of the paper"), &[PHI_ON_ULTRA], &TOLD, &[*scheme], paper));
    }
    for (scheme, paper) in Scheme::BASELINES.iter().zip(LONG) {
        rows.extend(all("§5.4", phi("prompt 4096"), &[PHI_ON_ULTRA], &TOLD[2..], &[*scheme], paper));
    }
    for (more, paper) in Scheme::BASELINES.into_iter().zip(SHORT) {
        let ratio = Ratio { measure: Measure::Energy, place: PHI_ON_ULTRA, setting: TOLD[1], more, less: Scheme::All };
        rows.push(ratio.row(study, "§5.4", Some(paper)));
    }
    let chunks = [(0, [2.01, 6.30]), (1, [3.19, 7.37]), (3, [2.30, 5.23])];
    for (at, paper) in chunks {
        rows.extend(all("§5.8", phi(&TOLD[at].name()), &[PHI_ON_ULTRA], &TOLD[at..=at], &Scheme::BASELINES, paper));
    }
    for (target, paper) in OTHERS {
        let over = format!("{}, all prompts and chunks", target.name());
        rows.extend(all("§5.2", over, &places(target), &study.sweep.settings(), &Scheme::BASELINES, paper));
    }
    rows.extend(TOLD.map(|setting| absolute(study, setting)));
    rows.extend(communication(study));
    Section {
        id: "energy",
        title: "Energy (§5.4, Figure 15)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: vec![table(study)],
        plots: TOLD.into_iter().filter_map(|setting| plot(study, setting)).collect(),
    }
}

const PROSE: [&str; 3] = [
    "Each unit's power at what it does over the time that it takes, and what the memory takes for every byte that is moved, \
     which is what the paper calls communication. The CPU takes its full power for products on all cores, and that of one core \
     while it moves rows or waits for a launch.",
    "The power of the M2's CPU under products is an estimate, from 40 to 90 W on the Ultra; the ratios over CPU and dense-only \
     are as uncertain as that. The NPU's is measured, and with it the joules of all.",
    "Naïve moves hardly more bytes than all does: the same weights and more padding. That its communication takes 4.4 to 5.7 \
     times as much in the paper says that weights move several times for each call, or that the counter runs on while the \
     machine waits; no published figure says which.",
];

fn absolute(study: &Study, setting: Setting) -> Row {
    let read = |view: View<'_>| {
        let cell = view.cell(PHI_ON_ULTRA, setting, Scheme::All)?;
        Some(cell.prefill.energy.joules() / f64::from(setting.prompt))
    };
    let what = study.setting(&format!("{}, {}", PHI_ON_ULTRA.name(), setting.name()));
    Row::new("§5.4", what, "energy a token, all", Unit::Joules)
        .computed(study.sweep.estimate(read), study.prompts(setting.prompt))
        .paper(Paper::Between(OURS[0] / 1e3, OURS[1] / 1e3))
}

fn communication(study: &Study) -> Vec<Row> {
    let range = Range {
        figure: "§5.4",
        measure: Measure::Communication,
        over: format!("{}, all settings of the paper", PHI_ON_ULTRA.name()),
        places: &[PHI_ON_ULTRA],
        settings: &TOLD,
        more: &[Scheme::Naive],
        less: Scheme::All,
        paper: COMMUNICATION.map(Some),
    };
    range.rows(study)
}

fn table(study: &Study) -> Table {
    let names: Vec<&str> = ["", "prompt", "chunk"].into_iter().chain(Scheme::ALL.map(Scheme::name)).collect();
    let mut table = Table::new("Millijoules for each token of the prompt", &names);
    for place in Place::all() {
        for setting in study.sweep.settings() {
            let energy = |scheme| {
                let cell = study.sweep.nominal().cell(place, setting, scheme);
                Entry::number(cell.map(|cell| cell.prefill.energy.joules() / f64::from(setting.prompt) * 1e3), 1)
            };
            let mut row = vec![Entry::text(place.name()), Entry::text(setting.prompt), Entry::text(setting.chunk)];
            row.extend(Scheme::ALL.map(energy));
            table.push(row);
        }
    }
    table
}

fn plot(study: &Study, setting: Setting) -> Option<Plot> {
    let bar = |scheme: Scheme| {
        let energy = study.sweep.nominal().cell(PHI_ON_ULTRA, setting, scheme)?.prefill.energy;
        let parts = [energy.cpu, energy.npu, energy.memory, energy.gpu];
        let each = parts.map(|joules| joules / f64::from(setting.prompt) * 1e3);
        Some(Bar { name: scheme.name().to_owned(), parts: each.into() })
    };
    let shown: Vec<Bar> = Scheme::ALL.into_iter().filter_map(bar).collect();
    let caption = format!("{}, {}", PHI_ON_ULTRA.name(), setting.name());
    Plot::of(caption, bars("mJ a token", &["CPU", "NPU", "memory", "GPU"], &shown))
}
