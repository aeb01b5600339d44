//! Time to the first token. (NPUMoE §5.2, §5.3, Figures 13 and 14)

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

/// Of the settings that the paper tells: over CPU, naïve and dense-only.
const PHI: [[f64; 3]; 4] = [[2.07, 5.55, 1.95], [1.32, 3.44, 1.33], [1.58, 3.85, 1.50], [1.72, 3.70, 1.56]];
/// The ranges of the other models.
const OTHERS: [(Target, [f64; 2]); 2] = [(Target::PhiTiny, [1.11, 1.87]), (Target::Qwen3, [1.19, 3.86])];
/// By how much attention takes longer, in per cent.
const ATTENTION: f64 = 27.6;
/// The share of dispatch in the naïve baseline's experts, at worst, in per cent.
const DISPATCH: f64 = 60.0;

pub(super) fn section(study: &Study) -> Section {
    let mut rows = ranges(study);
    for (setting, paper) in TOLD.into_iter().zip(PHI) {
        rows.extend(Scheme::BASELINES.into_iter().zip(paper).map(|(more, paper)| {
            let ratio = Ratio { measure: Measure::Latency, place: PHI_ON_ULTRA, setting, more, less: Scheme::All };
            ratio.row(study, "§5.3", Some(paper))
        }));
        let duet =
            Ratio { measure: Measure::Latency, place: PHI_ON_ULTRA, setting, more: Scheme::All, less: Scheme::Duet };
        rows.push(duet.row(study, "beyond", None));
        rows.push(attention_row(study, setting));
    }
    rows.push(dispatch_row(study));
    Section {
        id: "latency",
        title: "Time to the first token (§5.3, Figure 14)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Place::all().into_iter().map(|place| table(study, place)).collect(),
        plots: TOLD.into_iter().filter_map(|setting| plot(study, setting)).collect(),
    }
}

const PROSE: [&str; 6] = [
    "How many times as long a baseline takes until the first token. Baselines are as good as their placement allows: experts on \
     the CPU compute the rows that they are given, unpadded, each expert's weights being read once.",
    "The constants of the NPU are those that fit the paper's own Table 5: 3.2 TFLOPS and 62 GB/s, one after the other. A layer of \
     Phi-3.5-MoE reads 2.5 GB of experts, 41 ms of a chunk however few rows it has: that alone says that small chunks do not \
     pay. The CPU's 1.8 TFLOPS (the paper's NPU is 1.4 to 2.3 times as fast on dense products, §2) and 350 GB/s take less than \
     that for a chunk of 256, so that the CPU is predicted to be faster there, and the order of chunks is another than the \
     paper's: it finds its system furthest ahead where the NPU is used worst. The paper's 2.07 at a chunk of 256 needs a CPU \
     at about 0.7 TFLOPS, less than half of what its §2 implies. If the CPU's graphs are padded like the NPU's, which is how \
     Core ML models of fixed shapes run and is one of the readings in the sweep, all is ahead everywhere and near the paper.",
    "The naïve baseline's graphs take what the fit gives a launch, some tenths to two milliseconds: a tenth of the time beside \
     experts of 150 MB, and most of it beside the small experts of the other two models only. A share of more than 60 % with \
     Phi-3.5-MoE needs ten milliseconds a launch, which Table 5 excludes for graphs that are resident; graphs that are loaded \
     again for each call would take that. The sweep has the share as its upper end, and as another reading a capacity of the \
     whole chunk for every expert, which a baseline needs that drops nothing: either comes near the paper's ratios.",
    "Where experts are small a launch is worth a whole group's products on the CPU. By the profile the residency leaves nearly \
     all of Phi-tiny-MoE's and Qwen3-30B-A3B's groups to the M2 Ultra's CPU until chunks are large, and all is then dense-only: \
     that is where a lowest ratio of 1 comes from. It is the policy at work, and takes more energy than TG.",
    "duet computes what all drops, on the CPU while the NPU works, and takes no longer for it where the NPU has most of the \
     rows: by the profile, dropping saves energy, not time.",
    "Attention on the NPU goes over the whole cache, on the CPU over what is there: for the first chunks of a prompt that is many \
     times as much. It is predicted to be faster on the NPU all the same, for its projections; the paper has it slower.",
];

fn ranges(study: &Study) -> Vec<Row> {
    let settings = study.sweep.settings();
    let range = |target: Target, places: &[Place], settings: &[Setting], figure, paper: [f64; 2]| {
        let over = format!("{}, all prompts and chunks", target.name());
        let range = Range {
            figure,
            measure: Measure::Latency,
            over: if target == Target::PhiMoe { format!("M2 Ultra, {over} of the paper") } else { over },
            places,
            settings,
            more: &Scheme::BASELINES,
            less: Scheme::All,
            paper: paper.map(Some),
        };
        range.rows(study)
    };
    let mut rows = range(Target::PhiMoe, &[PHI_ON_ULTRA], &TOLD, "§5.2", [1.32, 5.55]);
    for (target, paper) in OTHERS {
        rows.extend(range(target, &places(target), &settings, "§5.2", paper));
    }
    let longest = Range {
        figure: "§5.8",
        measure: Measure::Latency,
        over: format!("{}, {}", PHI_ON_ULTRA.name(), TOLD[3].name()),
        places: &[PHI_ON_ULTRA],
        settings: &TOLD[3..],
        more: &Scheme::BASELINES,
        less: Scheme::All,
        paper: [Some(1.44), Some(3.70)],
    };
    rows.extend(longest.rows(study));
    rows
}

fn attention_row(study: &Study, setting: Setting) -> Row {
    let read = |view: View<'_>| {
        let seconds = |scheme| Some(view.cell(PHI_ON_ULTRA, setting, scheme)?.parts.attention.span.as_secs_f64());
        Some((seconds(Scheme::All)? / seconds(Scheme::Cpu)? - 1.0) * 100.0)
    };
    let what = study.setting(&format!("{}, {}", PHI_ON_ULTRA.name(), setting.name()));
    Row::new("§5.3", what, "attention of all over that of CPU, longer by", Unit::Percent)
        .computed(study.sweep.estimate(read), study.prompts(setting.prompt))
        .paper(Paper::Is(ATTENTION))
}

/// The share of launches in the naïve baseline's experts, at its highest.
fn dispatch_row(study: &Study) -> Row {
    let shares = |view: View<'_>| {
        let share = |place: Place, setting: Setting| {
            let experts = view.cell(place, setting, Scheme::Naive)?.parts.experts;
            Some(experts.launch.as_secs_f64() / experts.span.as_secs_f64() * 100.0)
        };
        let all = Place::all().into_iter().flat_map(|place| TOLD.map(|setting| share(place, setting)));
        all.flatten().reduce(f64::max)
    };
    Row::new("§5.3", study.setting("all models and machines"), "dispatch in naïve's experts, highest", Unit::Percent)
        .computed(study.sweep.estimate(shares), study.prompts(1024))
        .paper(Paper::AtLeast(DISPATCH))
}

fn table(study: &Study, place: Place) -> Table {
    let names: Vec<&str> = ["prompt", "chunk"].into_iter().chain(Scheme::ALL.map(Scheme::name)).collect();
    let mut table = Table::new(format!("{}: seconds to the first token", place.name()), &names);
    for setting in study.sweep.settings() {
        let seconds = |scheme| {
            let cell = study.sweep.nominal().cell(place, setting, scheme);
            Entry::number(cell.map(|cell| cell.prefill.seconds), 2)
        };
        let mut row = vec![Entry::text(setting.prompt), Entry::text(setting.chunk)];
        row.extend(Scheme::ALL.map(seconds));
        table.push(row);
    }
    table
}

fn plot(study: &Study, setting: Setting) -> Option<Plot> {
    let bar = |scheme: Scheme| {
        let cell = study.sweep.nominal().cell(PHI_ON_ULTRA, setting, scheme)?;
        let count = cell.prompts as f64;
        let parts = [cell.parts.attention, cell.parts.experts].map(|part| part.span.as_secs_f64() / count);
        Some(Bar { name: scheme.name().to_owned(), parts: parts.into() })
    };
    let shown: Vec<Bar> = Scheme::ALL.into_iter().filter_map(bar).collect();
    let caption = format!("{}, {}", PHI_ON_ULTRA.name(), setting.name());
    Plot::of(caption, bars("seconds to the first token", &["attention", "experts"], &shown))
}
