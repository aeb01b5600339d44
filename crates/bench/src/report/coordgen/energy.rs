//! Energy, over phones, models and tasks. (CoordGen §4.2, Figure 11)

use super::phones::{Phone, Target};
use super::ratios::Range;
use super::study::Study;
use super::sweep::{Place, Sweep, World, places};
use super::systems::System;
use crate::plot::{Bar, bars};
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Plot, Section};

/// Whose energy over whose, with which models, and the paper's range.
struct Claim {
    of: Option<Target>,
    more: &'static [System],
    less: System,
    paper: Option<[f64; 2]>,
}

const ALL_PLAIN: &[System] = &[System::NpuVanilla, System::CpuVanilla];
const SAM: &[System] = &[System::NpuSam, System::CpuSam];
const EAGLE: &[System] = &[System::NpuEagle, System::CpuEagle];

const CLAIMS: [Claim; 8] = [
    claim(None, &[System::NpuVanilla], System::CoordGen, Some([1.35, 4.18])),
    claim(None, &[System::CpuVanilla], System::CoordGen, Some([1.11, 2.50])),
    claim(None, SAM, System::CoordGen, Some([1.07, 3.07])),
    claim(None, EAGLE, System::CoordGen, Some([1.77, 4.71])),
    claim(Some(Target::Llama3), ALL_PLAIN, System::CoordGen, Some([1.42, 1.85])),
    claim(Some(Target::Qwen05), &[System::NpuVanilla], System::CoordGen, Some([1.40, 3.50])),
    claim(Some(Target::Qwen05), &[System::NpuVanilla], System::NpuSam, Some([1.17, 1.54])),
    claim(None, &[System::CoordGen], System::Duet, None),
];

const fn claim(of: Option<Target>, more: &'static [System], less: System, paper: Option<[f64; 2]>) -> Claim {
    Claim { of, more, less, paper }
}

/// Phones whose energy the paper measured. (§4.1)
const MEASURED: [Phone; 2] = [Phone::K60Pro, Phone::OnePlus13];
/// Joules a request with Qwen2.5-1.5B; the text leaves open which phone has which, and says that the OnePlus 13 has more.
const JOULES: [f64; 2] = [53.85, 56.52];

pub(super) fn section(study: &Study, sweep: &Sweep) -> Section {
    let mut rows: Vec<Row> = CLAIMS.iter().flat_map(|claim| claim_rows(study, sweep, claim)).collect();
    rows.extend(MEASURED.iter().zip(JOULES).map(|(&phone, paper)| request_row(study, sweep, phone, paper)));
    Section {
        id: "energy",
        title: "Energy (§4.2, Figure 11)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        plots: MEASURED.iter().filter_map(|&phone| plot(study, sweep, phone)).collect(),
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "Each unit's power at what it does, over the time that it takes. No power of a phone's NPU or CPU is published: all of \
     these are estimates, from half to twice. The paper reads the phone's battery, with the display, the memory and everything \
     else in it, so its joules are more than these by much; ratios suffer less.",
    "The paper has energy of the K60 Pro (8 Gen 2) and the OnePlus 13 (8 Elite).",
];

/// A comparison at one place.
type Cell = (Place, usize, System);

fn claim_rows(study: &Study, sweep: &Sweep, claim: &Claim) -> Vec<Row> {
    let is_in = |(phone, target): &Place| MEASURED.contains(phone) && claim.of.is_none_or(|of| of == *target);
    let pairs = |task: usize| {
        places().filter(is_in).flat_map(move |place| claim.more.iter().map(move |&more| (place, task, more)))
    };
    let cells: Vec<Cell> = (0..study.traces.len()).flat_map(pairs).collect();
    let over = claim.of.map_or("all models", Target::name);
    let names: Vec<&str> = claim.more.iter().map(|system| system.name()).collect();
    let range = Range {
        figure: "§4.2",
        setting: study.setting(&format!("8 Gen 2 and 8 Elite, {over}, all tasks")),
        quantity: format!("{} over {}, energy", names.join(" and "), claim.less.name()),
        cells: &cells,
        paper: claim.paper,
        n: study.n(),
    };
    range.rows(sweep, |world: &World, (place, task, more)| {
        world.cost(place, more, task).joules / world.cost(place, claim.less, task).joules
    })
}

fn request_row(study: &Study, sweep: &Sweep, phone: Phone, paper: f64) -> Row {
    let read = |world: &World| {
        let cost = world.all((phone, Target::Qwen15), System::CoordGen);
        Some(cost.joules / cost.requests)
    };
    let setting = format!("{}, {}, all tasks", phone.name(), Target::Qwen15.name());
    Row::new("§4.2", study.setting(&setting), "energy a request, CoordGen", Unit::Joules)
        .computed(sweep.estimate(read), study.n())
        .paper(Paper::Is(paper))
}

fn plot(study: &Study, sweep: &Sweep, phone: Phone) -> Option<Plot> {
    let bar = |system: System| {
        let cost = sweep.nominal().all((phone, Target::Qwen15), system);
        Bar { name: system.name().to_owned(), parts: vec![cost.joules / cost.requests] }
    };
    let caption = format!("{}, {}, all {} requests", phone.name(), Target::Qwen15.name(), study.n());
    Plot::of(caption, bars("J a request", &["energy"], &System::DRAWN.map(bar)))
}
