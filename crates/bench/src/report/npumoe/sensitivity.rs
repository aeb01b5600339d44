//! Sensitivity: whether the conclusions hold across what is not known, one thing at a time.

use super::Study;
use super::claims::{Measure, PHI_ON_ULTRA, Ratio, TOLD};
use super::prefill::Setting;
use super::schemes::Scheme;
use super::sweep::{Variation, View};
use crate::report::section::{Entry, Section, Table};

/// Something that the paper says: a ratio above one.
const CONCLUSIONS: [(&str, Measure, Scheme, Scheme); 9] = [
    ("time, CPU", Measure::Latency, Scheme::Cpu, Scheme::All),
    ("time, naïve", Measure::Latency, Scheme::Naive, Scheme::All),
    ("time, dense-only", Measure::Latency, Scheme::DenseOnly, Scheme::All),
    ("energy, CPU", Measure::Energy, Scheme::Cpu, Scheme::All),
    ("energy, naïve", Measure::Energy, Scheme::Naive, Scheme::All),
    ("energy, dense-only", Measure::Energy, Scheme::DenseOnly, Scheme::All),
    ("cycles, CPU", Measure::Cycles, Scheme::Cpu, Scheme::All),
    ("time, base", Measure::Latency, Scheme::Base, Scheme::All),
    ("time, all over duet", Measure::Latency, Scheme::All, Scheme::Duet),
];

pub(super) fn section(study: &Study) -> Section {
    Section {
        id: "sensitivity",
        title: "Sensitivity to what is not known",
        prose: PROSE.map(str::to_owned).into(),
        tables: TOLD.map(|setting| table(study, setting)).into(),
        ..Section::default()
    }
}

const PROSE: [&str; 1] = [
    "Each constant that has an interval, and each reading of what the paper leaves open, is set to its ends, one at a time. A \
     column is how many times as much a scheme takes as all (the last one: all over duet). What is on the other side of one \
     than with everything as it is, is marked: a conclusion that does not survive.",
];

fn table(study: &Study, setting: Setting) -> Table {
    let names: Vec<&str> = ["what is another"].into_iter().chain(CONCLUSIONS.map(|(name, ..)| name)).collect();
    let mut table = Table::new(format!("{}, {}", PHI_ON_ULTRA.name(), setting.name()), &names);
    let nominal = ratios(study.sweep.nominal(), setting);
    for (variation, view) in study.sweep.views() {
        let ratios = ratios(view, setting);
        if variation != Variation::None && ratios == nominal {
            continue;
        }
        let mut row = vec![Entry::text(variation.name())];
        row.extend(ratios.iter().zip(nominal).map(|(ratio, nominal)| {
            let entry = Entry::number(*ratio, 2);
            let flips = ratio.zip(nominal).is_some_and(|(ratio, nominal)| (ratio > 1.0) != (nominal > 1.0));
            if flips { entry.flagged() } else { entry }
        }));
        table.push(row);
    }
    table
}

fn ratios(view: View<'_>, setting: Setting) -> [Option<f64>; 9] {
    let place = PHI_ON_ULTRA;
    CONCLUSIONS.map(|(_, measure, more, less)| Ratio { measure, place, setting, more, less }.of(view))
}
