//! Latency a token, over phones, models and tasks. (CoordGen §4.2, Figure 10)

use super::paper_task::PaperTask;
use super::phones::{Phone, Target};
use super::ratios::Range;
use super::study::Study;
use super::sweep::{Place, Sweep, World, places};
use super::systems::System;
use crate::plot::{Bar, bars};
use crate::report::row::Row;
use crate::report::section::{Entry, Plot, Section, Table};

/// What the paper compares: over how much of the grid, whose latency over whose, and the range.
struct Claim {
    over: Over,
    slow: &'static [System],
    fast: System,
    paper: Option<[f64; 2]>,
}

/// A part of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    All,
    Summary,
    K70Pro,
}

const SAM: &[System] = &[System::NpuSam, System::CpuSam];
const EAGLE: &[System] = &[System::NpuEagle, System::CpuEagle];

const CLAIMS: [Claim; 14] = [
    claim(Over::All, &[System::NpuVanilla], System::CoordGen, Some([1.14, 3.81])),
    claim(Over::All, &[System::CpuVanilla], System::CoordGen, Some([1.06, 1.78])),
    claim(Over::All, SAM, System::CoordGen, Some([1.11, 2.53])),
    claim(Over::All, EAGLE, System::CoordGen, Some([1.09, 1.80])),
    claim(Over::Summary, &[System::NpuVanilla], System::CoordGen, Some([1.41, 3.80])),
    claim(Over::Summary, &[System::CpuVanilla], System::CoordGen, Some([1.24, 1.61])),
    claim(Over::K70Pro, &[System::NpuVanilla], System::CoordGen, Some([1.14, 2.91])),
    claim(Over::K70Pro, &[System::CpuVanilla], System::CoordGen, Some([1.13, 1.64])),
    claim(Over::All, &[System::CpuVanilla], System::CpuSam, Some([0.92, 1.13])),
    claim(Over::All, &[System::CpuVanilla], System::CpuEagle, Some([0.56, 1.18])),
    claim(Over::All, &[System::NpuVanilla], System::CoordGenShared, None),
    claim(Over::All, &[System::CoordGenShared], System::CoordGen, None),
    claim(Over::All, &[System::NpuVanilla], System::Duet, None),
    claim(Over::All, &[System::CoordGen], System::Duet, None),
];

const fn claim(over: Over, slow: &'static [System], fast: System, paper: Option<[f64; 2]>) -> Claim {
    Claim { over, slow, fast, paper }
}

pub(super) fn section(study: &Study, sweep: &Sweep) -> Section {
    let rows = CLAIMS.iter().flat_map(|claim| rows(study, sweep, claim));
    Section {
        id: "latency",
        title: "Latency a token (§4.2, Figure 10)",
        prose: PROSE.map(str::to_owned).into(),
        rows: rows.collect(),
        tables: study.traces.iter().enumerate().map(|(task, trace)| table(sweep, task, &trace.title())).collect(),
        plots: plots(study, sweep),
    }
}

const PROSE: [&str; 4] = [
    "How many times as long a baseline takes for a token, from the lowest to the highest of all phones, models and tasks that \
     were traced. CoordGen and duet verify on graphs of 32 rows and read prompts on graphs of 256, of which one is resident in \
     each of six blocks: CoordGen exchanges them by the paper's rule, duet from the latest start on that hides it. The paper's \
     SAM and EAGLE are each two baselines, on the NPU and on the CPU; all of both are in the range.",
    "EAGLE is the paper's own stand-in: 5.5 tokens a verification whatever the text, drafted by five passes of a layer and the \
     head.",
    "The 8 Gen 3's NPU is called much slower than the others by the paper. No published figure says so, and no profile here \
     does; what the paper has for it alone stands beside what the profile gives.",
    "The CPU of a profile verifies a draft for what its arithmetic takes; how much of a draft is best there is chosen from 1 \
     to 31 rows.",
];

/// A comparison at one place.
type Cell = (Place, usize, System);

/// All that a claim goes over.
fn cells(study: &Study, claim: &Claim) -> Vec<Cell> {
    let summary = study.place(PaperTask::Summary);
    let is_in = |phone: Phone, task: usize| match claim.over {
        Over::All => true,
        Over::Summary => Some(task) == summary,
        Over::K70Pro => phone == Phone::K70Pro,
    };
    let mut cells = Vec::new();
    for task in 0..study.traces.len() {
        let places = places().filter(|(phone, _)| is_in(*phone, task));
        cells.extend(places.flat_map(|place| claim.slow.iter().map(move |&slow| (place, task, slow))));
    }
    cells
}

fn rows(study: &Study, sweep: &Sweep, claim: &Claim) -> Vec<Row> {
    let over = match claim.over {
        Over::All => "all phones, models and tasks",
        Over::Summary => "all phones and models, summary",
        Over::K70Pro => "8 Gen 3, all models and tasks",
    };
    let names: Vec<&str> = claim.slow.iter().map(|system| system.name()).collect();
    let range = Range {
        figure: "§4.2",
        setting: study.setting(over),
        quantity: format!("{} over {}, latency a token", names.join(" and "), claim.fast.name()),
        cells: &cells(study, claim),
        paper: claim.paper,
        n: study.n(),
    };
    range.rows(sweep, |world: &World, (place, task, slow)| {
        world.cost(place, slow, task).ms_per_token() / world.cost(place, claim.fast, task).ms_per_token()
    })
}

fn table(sweep: &Sweep, task: usize, title: &str) -> Table {
    let names: Vec<&str> = ["phone", "model"].into_iter().chain(System::ALL.map(System::name)).collect();
    let mut table = Table::new(format!("{title}: ms for each token of the answer, prompt included"), &names);
    for place in places() {
        let mut row = vec![Entry::text(place.0.name()), Entry::text(place.1.name())];
        let latency = |system| sweep.nominal().cost(place, system, task).ms_per_token();
        row.extend(System::ALL.map(|system| Entry::number(Some(latency(system)), 1)));
        table.push(row);
    }
    table
}

/// Every system with the 1.5B model, on each phone.
fn plots(study: &Study, sweep: &Sweep) -> Vec<Plot> {
    let shown = study.place(PaperTask::Summary).or((!study.traces.is_empty()).then_some(0));
    let plot = |phone: Phone| {
        let task = shown?;
        let bar = |system: System| {
            let cost = sweep.nominal().cost((phone, Target::Qwen15), system, task);
            let parts = [cost.prefill_s, cost.decode_s].map(|seconds| seconds * 1e3 / cost.tokens);
            Bar { name: system.name().to_owned(), parts: parts.into() }
        };
        let caption = format!("{}, {}, {}", phone.name(), Target::Qwen15.name(), study.traces[task].title());
        Plot::of(caption, bars("ms a token", &["prefill", "decode"], &System::DRAWN.map(bar)))
    };
    Phone::ALL.into_iter().filter_map(plot).collect()
}
