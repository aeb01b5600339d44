//! Where the time goes: prefill, decode, and what calibration and drafting cost. (CoordGen §4.4, Figure 13)

use super::assumptions::DRAFT_MS;
use super::paper_task::PaperTask;
use super::phones::{Phone, Target};
use super::study::Study;
use super::sweep::{Place, Sweep, World};
use super::systems::{Cost, System};
use crate::plot::{Bar, bars};
use crate::report::outcome::Estimate;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Plot, Section};
use duet_scheduler::annotation::demand;
use duet_scheduler::heg::{Heg, Load, TokenWise};
use duet_speculate::Method;

/// Share of decode under NPU vanilla, in per cent.
const VANILLA_SHARE: [f64; 2] = [67.0, 74.0];
/// Share of decode with prefill on the NPU and decode on the CPU, 1.5B on summary, in per cent. (§1, §2.1)
const CPU_SHARE: f64 = 87.2;
/// How many times as long NPU vanilla decodes.
const DECODE: [f64; 2] = [5.25, 8.15];
/// Milliseconds for each token of the prompt.
const CALIBRATION_MS: f64 = 2.0;

pub(super) fn section(study: &Study, sweep: &Sweep) -> Section {
    let mut section = Section {
        id: "breakdown",
        title: "Where the time goes (§4.4, Figure 13)",
        prose: PROSE.map(str::to_owned).into(),
        rows: Target::ALL.map(|target| calibration_row(study, target)).into(),
        ..Section::default()
    };
    let Some(task) = study.place(PaperTask::Summary) else {
        section
            .prose
            .push("The rest is of summary, which was not among the requests: nothing is predicted.".to_owned());
        return section;
    };
    for target in Target::ALL {
        section.rows.extend(rows(study, sweep, task, target));
    }
    section.plots.extend(plot(sweep, task));
    section
}

const PROSE: [&str; 3] = [
    "On the Snapdragon 8 Elite. The paper's ranges are over its models; here each model has rows of its own. Decode latency is \
     the time from the first token to the last.",
    "Calibration is what the head takes for the rows of a prompt whose logits nobody else wants, as the annotation says; a \
     search for the four likeliest tokens of each comes on top, on the CPU and beside the next chunk, and is not in it.",
    "Drafting is not timed here, where the same report has the same bytes: duet bench speculate measures it \
     (draft_us_per_step). Its row is the share of decode that the paper's bound of 3 ms a step would be.",
];

const ON: Phone = Phone::OnePlus13;

fn row(study: &Study, target: Target, quantity: &str, unit: Unit) -> Row {
    Row::new("§4.4", study.setting(&format!("{}, {}, summary", ON.name(), target.name())), quantity, unit)
}

fn rows(study: &Study, sweep: &Sweep, task: usize, target: Target) -> Vec<Row> {
    let n = study.traces[task].requests.len();
    let place: Place = (ON, target);
    let share = |system: System| {
        sweep.estimate(move |world: &World| {
            let Cost { prefill_s, decode_s, .. } = world.cost(place, system, task);
            Some(decode_s / (prefill_s + decode_s) * 100.0)
        })
    };
    let shorter = |slow: System, fast: System| {
        sweep.estimate(move |world: &World| {
            let decode = |system| world.cost(place, system, task).decode_s;
            Some(decode(slow) / decode(fast))
        })
    };
    let between = |[low, high]: [f64; 2]| Paper::Between(low, high);
    let vanilla = row(study, target, "decode's share of a request, NPU vanilla", Unit::Percent);
    let cpu = row(study, target, "decode's share of a request, CPU vanilla", Unit::Percent)
        .computed(share(System::CpuVanilla), n);
    vec![
        vanilla.computed(share(System::NpuVanilla), n).paper(between(VANILLA_SHARE)),
        if target == Target::Qwen15 { cpu.paper(Paper::Is(CPU_SHARE)) } else { cpu },
        row(study, target, "decode's share of a request, CoordGen", Unit::Percent).computed(share(System::CoordGen), n),
        row(study, target, "decode of NPU vanilla over that of CoordGen", Unit::Times)
            .computed(shorter(System::NpuVanilla, System::CoordGen), n)
            .paper(between(DECODE)),
        row(study, target, "decode of NPU vanilla, on the prefill's graph, over that of CoordGen", Unit::Times)
            .computed(shorter(System::NpuPrefillGraph, System::CoordGen), n)
            .paper(between(DECODE)),
        row(study, target, "decode of NPU vanilla over that of duet", Unit::Times)
            .computed(shorter(System::NpuVanilla, System::Duet), n),
        row(study, target, "share of decode that 3 ms of drafting a step would be, CoordGen", Unit::Percent)
            .computed(drafting(study, sweep, task, place), n),
    ]
}

/// Drafting at the paper's bound, in per cent of decode without it.
fn drafting(study: &Study, sweep: &Sweep, task: usize, place: Place) -> Option<Estimate> {
    let steps: usize = study.traces[task].requests.iter().map(|request| request.by(Method::CoordGen).steps.len()).sum();
    let draft_s = steps as f64 * DRAFT_MS.high / 1e3;
    sweep.estimate(|world| Some(draft_s / world.cost(place, System::CoordGen, task).decode_s * 100.0))
}

/// The head for one row more of a chunk.
fn calibration_row(study: &Study, target: Target) -> Row {
    let soc = ON.soc();
    let heg = target.shape().heg();
    let nothing = TokenWise { macs_per_row: 0.0, weight_bytes: 0.0, row_bytes: 0.0, routed: None };
    let head = Heg { layers: 0, qkv: nothing, ffn: nothing, ..heg.clone() };
    let rows = soc.chunk.rows.value;
    let ms = |gemm: f64| {
        let mut soc = soc.clone();
        soc.npu.gemm_tflops.value = gemm;
        let anchors = soc.accelerators(&heg).lanes[0].anchors;
        let load = Load { tokens: rows, ..Load::default() };
        (demand(&head, &anchors, &load, &(0..head.nodes())).seconds - anchors.launch.as_secs_f64()) * 1e3 / rows
    };
    let rate = &soc.npu.gemm_tflops;
    let (low, high) = rate.interval().unwrap_or((rate.value, rate.value));
    // The faster the products, the shorter.
    let estimate = Estimate { value: ms(rate.value), low: ms(high), high: ms(low) };
    Row::new(
        "§3.3",
        format!("{}, {}", ON.name(), target.name()),
        "calibration a token of the prompt",
        Unit::Milliseconds,
    )
    .computed(Some(estimate), study.n())
    .paper(Paper::Is(CALIBRATION_MS))
}

fn plot(sweep: &Sweep, task: usize) -> Option<Plot> {
    let mut shown = Vec::new();
    for target in Target::ALL {
        for system in [System::NpuVanilla, System::CoordGen] {
            let cost = sweep.nominal().cost((ON, target), system, task);
            let parts = [cost.prefill_s, cost.decode_s].map(|seconds| seconds / cost.requests);
            shown.push(Bar { name: format!("{}, {}", target.name(), system.name()), parts: parts.into() });
        }
    }
    Plot::of("8 Elite, summary: seconds of a request", bars("s", &["prefill", "decode"], &shown))
}
