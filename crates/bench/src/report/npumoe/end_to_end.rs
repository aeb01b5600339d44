//! A prompt and its answer of eight tokens. (NPUMoE §5.3-§5.5, "end-to-end")

use super::Study;
use super::claims::{Measure, PHI_ON_ULTRA, Range, TOLD};
use super::machines::Place;
use super::schemes::Scheme;
use super::sweep::View;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Entry, Section, Table};

/// What the paper says of CPU, naïve and dense-only; of the first two measures the highest alone.
const LATENCY: [[Option<f64>; 2]; 3] = [[None, Some(1.26)], [None, Some(3.86)], [None, Some(1.19)]];
const ENERGY: [[Option<f64>; 2]; 3] = [[None, Some(1.84)], [None, Some(3.89)], [None, Some(1.95)]];
const CYCLES: [[Option<f64>; 2]; 3] = [[Some(2.64), Some(3.75)], [Some(3.17), Some(4.67)], [Some(2.01), Some(2.99)]];
/// The share of reading the prompt, in per cent, of latency and of cycles. (§1, Figure 2)
const PREFILL: [f64; 2] = [80.0, 70.0];

pub(super) fn section(study: &Study) -> Section {
    let measures = [(Measure::WholeLatency, LATENCY), (Measure::WholeEnergy, ENERGY), (Measure::WholeCycles, CYCLES)];
    let mut rows: Vec<Row> = Vec::new();
    for (measure, papers) in measures {
        for (scheme, paper) in Scheme::BASELINES.iter().zip(papers) {
            rows.extend(range(study, measure, *scheme, Scheme::All, paper, "end to end"));
        }
        rows.extend(range(study, measure, Scheme::All, Scheme::Duet, [None; 2], "beyond"));
    }
    rows.extend(shares(study));
    Section {
        id: "end-to-end",
        title: "With the answer (§5.3 to §5.5)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: vec![table(study)],
        ..Section::default()
    }
}

const PROSE: [&str; 3] = [
    "An answer of eight tokens after each prompt. The paper's prototype decodes by the pipeline that it reads prompts with: each \
     token's experts are launched as whole groups, here in graphs with the smallest capacity, 16 rows. Up to eight experts are \
     read where two are asked for, at 62 GB/s, so that eight tokens can take longer than the prompt.",
    "The paper's ratios with the answer are indeed far below those without it. duet decodes on the CPU, which reads two experts \
     at 350 GB/s.",
    "What a token goes to is taken from the last eight rows of each prompt of 1024.",
];

fn range(
    study: &Study,
    measure: Measure,
    more: Scheme,
    less: Scheme,
    paper: [Option<f64>; 2],
    figure: &'static str,
) -> Vec<Row> {
    let over = format!("{}, all settings of the paper", PHI_ON_ULTRA.name());
    let (places, more) = (&[PHI_ON_ULTRA], &[more]);
    Range { figure, measure, over, places, settings: &TOLD, more, less, paper }.rows(study)
}

/// The paper does not say whose: of the CPU alone here.
fn shares(study: &Study) -> Vec<Row> {
    let row = |(measure, whole, paper): (Measure, Measure, f64)| {
        let read = move |view: View<'_>| {
            let cell = view.cell(PHI_ON_ULTRA, TOLD[1], Scheme::Cpu)?;
            Some(measure.of(cell) / whole.of(cell) * 100.0)
        };
        let what = study.setting(&format!("{}, {}", PHI_ON_ULTRA.name(), TOLD[1].name()));
        Row::new("§1", what, format!("share of the prompt, CPU, {}", whole.name()), Unit::Percent)
            .computed(study.sweep.estimate(read), study.prompts(TOLD[1].prompt))
            .paper(Paper::Is(paper))
    };
    let of =
        [(Measure::Latency, Measure::WholeLatency, PREFILL[0]), (Measure::Cycles, Measure::WholeCycles, PREFILL[1])];
    of.map(row).into()
}

fn table(study: &Study) -> Table {
    let names: Vec<&str> = ["", "prompt", "chunk"].into_iter().chain(Scheme::ALL.map(Scheme::name)).collect();
    let mut table = Table::new("Seconds of an answer's eight tokens", &names);
    for place in Place::all() {
        for setting in TOLD {
            let seconds = |scheme| {
                let cell = study.sweep.nominal().cell(place, setting, scheme);
                Entry::number(cell.map(|cell| cell.whole.seconds - cell.prefill.seconds), 2)
            };
            let mut row = vec![Entry::text(place.name()), Entry::text(setting.prompt), Entry::text(setting.chunk)];
            row.extend(Scheme::ALL.map(seconds));
            table.push(row);
        }
    }
    table
}
