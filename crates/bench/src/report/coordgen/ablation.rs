//! What each technique is worth. (CoordGen §4.5, Table 3)

use super::paper_task::PaperTask;
use super::phones::{Phone, Target};
use super::study::Study;
use super::sweep::{Sweep, World};
use super::systems::System;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Entry, Section, Table};

/// The paper's columns, in ms/token: NPU, +G, +SD, +G+SD, ours.
fn table_3(target: Target) -> [f64; 5] {
    match target {
        Target::Qwen05 => [24.46, 23.43, 18.75, 18.45, 7.17],
        Target::Qwen15 => [57.41, 47.72, 35.04, 25.35, 15.08],
        Target::Llama3 => [71.71, 70.03, 47.93, 46.25, 41.62],
    }
}

/// A column, and the paper's figure beside it.
type Column = (&'static str, System, Option<usize>);
const COLUMNS: [Column; 8] = [
    ("NPU", System::NpuVanilla, Some(0)),
    ("NPU, on the prefill's graph of 256 rows", System::NpuPrefillGraph, Some(0)),
    ("+G", System::NpuGraph, Some(1)),
    ("+SD", System::NpuSam, Some(2)),
    ("+G+SD", System::NpuSamGraph, Some(3)),
    ("ours", System::CoordGen, Some(4)),
    ("calibration and extension without graphs", System::CoordGenShared, None),
    ("calibration and extension, both graphs resident", System::CoordGenBoth, None),
];

pub(super) fn section(study: &Study, sweep: &Sweep) -> Section {
    let mut section = Section {
        id: "ablation",
        title: "What each technique is worth (Table 3)",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    let Some(task) = study.place(PaperTask::Summary) else {
        section.prose.push("Table 3 is of summary, which was not among the requests: nothing is predicted.".to_owned());
        return section;
    };
    for target in Target::ALL {
        section.rows.extend(COLUMNS.iter().map(|column| column_row(study, sweep, task, target, column)));
    }
    section.tables.push(shared_graphs(sweep));
    section
}

const PROSE: [&str; 3] = [
    "Milliseconds for each token on summary, on the Snapdragon 8 Gen 2. The columns with G have graphs of 256 and of 32 rows in \
     six blocks, of which one is resident; they are exchanged while the prompt is read, by the paper's rule, from prefill \
     graphs at the beginning of each request. What exchanging them could come to at most, with both resident, is a row of its \
     own and is held against nothing.",
    "Without it one graph serves both stages, and every pass is padded to its rows. Its rows are those of the four sizes that \
     come to the lowest latency over all requests, for each system by itself, so that no baseline is a straw man; the table \
     shows which. Decoding on the prefill's graph of 256 rows, as a system has it that tunes nothing, has its own row.",
    "By the profile, 32 rows take hardly longer than one on this NPU, and 256 rows eight times as long as 32: a graph of 32 \
     rows is nearly as good for prompts as one of 256, and so a second graph is worth little, or less than exchanging it \
     costs. On the papers' phones a graph of 32 rows reads prompts more slowly than one of 256 (CoordGen Figure 5); how much, \
     only the figure shows.",
];

fn setting(study: &Study, target: Target) -> String {
    study.setting(&format!("{}, {}, summary", Phone::K60Pro.name(), target.name()))
}

fn row(study: &Study, target: Target, name: &str) -> Row {
    Row::new("Table 3", setting(study, target), format!("latency a token, {name}"), Unit::Milliseconds)
}

fn column_row(study: &Study, sweep: &Sweep, task: usize, target: Target, &(name, system, place): &Column) -> Row {
    let read = |world: &World| Some(world.cost((Phone::K60Pro, target), system, task).ms_per_token());
    let row = row(study, target, name).computed(sweep.estimate(read), study.traces[task].requests.len());
    match place {
        Some(place) => row.paper(Paper::Is(table_3(target)[place])),
        None => row,
    }
}

/// Which graph each system does best with.
fn shared_graphs(sweep: &Sweep) -> Table {
    let shared = [System::NpuVanilla, System::NpuSam, System::NpuEagle, System::CoordGenShared];
    let names: Vec<&str> = ["phone", "model"].into_iter().chain(shared.map(System::name)).collect();
    let mut table = Table::new("Rows of the one graph for both stages, as each system is best", &names);
    for (phone, target) in super::sweep::places() {
        let mut row = vec![Entry::text(phone.name()), Entry::text(target.name())];
        row.extend(shared.map(|system| Entry::text(sweep.nominal().setting((phone, target), system).prefill.0)));
        table.push(row);
    }
    table
}
