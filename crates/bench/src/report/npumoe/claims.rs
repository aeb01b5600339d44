//! What the paper claims: how many times as much a baseline takes, at one place or over several.

use super::Study;
use super::machines::{Machine, Place};
use super::prefill::Setting;
use super::schemes::Scheme;
use super::sweep::{Cell, View};
use super::targets::Target;
use crate::report::row::{Paper, Row, Unit};

/// Something that is measured of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// To the first token.
    Latency,
    Energy,
    /// Of memory alone.
    Communication,
    Cycles,
    /// With the answer.
    WholeLatency,
    WholeEnergy,
    WholeCycles,
}

/// A ratio at one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) measure: Measure,
    pub(super) place: Place,
    pub(super) setting: Setting,
    pub(super) more: Scheme,
    pub(super) less: Scheme,
}

/// The lowest and the highest ratio over places, settings and baselines: how the paper tells most of its results.
pub(super) struct Range<'a> {
    pub(super) figure: &'static str,
    pub(super) measure: Measure,
    /// What it goes over, in words.
    pub(super) over: String,
    pub(super) places: &'a [Place],
    pub(super) settings: &'a [Setting],
    pub(super) more: &'a [Scheme],
    pub(super) less: Scheme,
    /// Lowest and highest, if the paper has them.
    pub(super) paper: [Option<f64>; 2],
}

/// The lower or the higher of two.
pub(super) type Choose = fn(f64, f64) -> f64;

/// Where most of the paper's results are from.
pub(super) const PHI_ON_ULTRA: Place = Place { machine: Machine::Ultra, target: Target::PhiMoe };

/// The settings that the paper has figures of, and by chunk what it says of them.
pub(super) const TOLD: [Setting; 4] = [
    Setting { prompt: 1024, chunk: 256 },
    Setting { prompt: 1024, chunk: 512 },
    Setting { prompt: 4096, chunk: 512 },
    Setting { prompt: 4096, chunk: 1024 },
];

impl Setting {
    /// What rows call it.
    pub(super) fn name(self) -> String {
        format!("prompt {}, chunk {}", self.prompt, self.chunk)
    }
}

impl Measure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Latency => "time to first token",
            Self::Energy => "energy a token",
            Self::Communication => "memory's energy a token",
            Self::Cycles => "CPU cycles",
            Self::WholeLatency => "latency with 8 decoded tokens",
            Self::WholeEnergy => "energy with 8 decoded tokens",
            Self::WholeCycles => "CPU cycles with 8 decoded tokens",
        }
    }

    /// Of a prompt.
    pub(super) fn of(self, cell: &Cell) -> f64 {
        match self {
            Self::Latency => cell.prefill.seconds,
            Self::Energy => cell.prefill.energy.joules(),
            Self::Communication => cell.prefill.energy.memory,
            Self::Cycles => cell.prefill.core_seconds,
            Self::WholeLatency => cell.whole.seconds,
            Self::WholeEnergy => cell.whole.energy.joules(),
            Self::WholeCycles => cell.whole.core_seconds,
        }
    }
}

impl Ratio {
    pub(super) fn of(&self, view: View<'_>) -> Option<f64> {
        let read = |scheme| Some(self.measure.of(view.cell(self.place, self.setting, scheme)?));
        Some(read(self.more)? / read(self.less)?)
    }

    /// As a row.
    pub(super) fn row(&self, study: &Study, figure: &'static str, paper: Option<f64>) -> Row {
        let setting = study.setting(&format!("{}, {}", self.place.name(), self.setting.name()));
        let quantity = format!("{} over {}, {}", self.more.name(), self.less.name(), self.measure.name());
        let row = Row::new(figure, setting, quantity, Unit::Times)
            .computed(study.sweep.estimate(|view| self.of(view)), study.prompts(self.setting.prompt));
        paper.map_or(row.clone(), |paper| row.paper(Paper::Is(paper)))
    }
}

impl Range<'_> {
    /// A row for the lowest and one for the highest; where the paper has one end only, that one.
    pub(super) fn rows(&self, study: &Study) -> Vec<Row> {
        let names: Vec<&str> = self.more.iter().map(|scheme| scheme.name()).collect();
        let (more, less) = (names.join(", "), self.less.name());
        let row = |(place, name, choose): (usize, &str, Choose)| {
            let quantity = format!("{more} over {less}, {}, {name}", self.measure.name());
            let row = Row::new(self.figure, study.setting(&self.over), quantity, Unit::Times)
                .computed(study.sweep.estimate(|view| self.ratios(view).reduce(choose)), self.n(study));
            match self.paper {
                [None, None] => Some(row),
                paper => paper[place].map(|paper| row.paper(Paper::Is(paper))),
            }
        };
        let ends: [(usize, &str, Choose); 2] = [(0, "lowest", f64::min), (1, "highest", f64::max)];
        ends.into_iter().filter_map(row).collect()
    }

    fn ratios<'v>(&'v self, view: View<'v>) -> impl Iterator<Item = f64> + 'v {
        let cells = self.places.iter().flat_map(|&place| self.settings.iter().map(move |&setting| (place, setting)));
        let ratios = cells.flat_map(move |(place, setting)| {
            let of = move |&more| Ratio { measure: self.measure, place, setting, more, less: self.less };
            self.more.iter().map(of)
        });
        ratios.filter_map(move |ratio| ratio.of(view))
    }

    fn n(&self, study: &Study) -> usize {
        self.settings.iter().map(|setting| study.prompts(setting.prompt)).max().unwrap_or_default()
    }
}

/// Everywhere that a model runs.
pub(super) fn places(target: Target) -> Vec<Place> {
    Place::all().into_iter().filter(|place| place.target == target).collect()
}
