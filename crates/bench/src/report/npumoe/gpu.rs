//! The GPU as a reference. (NPUMoE §5.8, A.3)

use super::Study;
use super::assumptions::Assumptions;
use super::claims::{Choose, Measure, PHI_ON_ULTRA, Range, Ratio, TOLD};
use super::costs::{Costs, Unit};
use super::machines::Machine;
use super::schemes::Scheme;
use super::sweep::{Cell, View};
use super::targets::Target;
use crate::report::outcome::Estimate;
use crate::report::row::{Paper, Row, Unit as Of};
use crate::report::section::Section;

/// How many times as fast, as much energy and as much power, over operations and runs.
const FASTER: [f64; 2] = [1.26, 5.4];
const ENERGY: [f64; 2] = [1.87, 4.48];
const POWER: [f64; 2] = [5.65, 9.41];
/// An operation on the GPU and on the NPU, in milliseconds.
const OPERATION: [f64; 2] = [7.09, 38.27];

pub(super) fn section(study: &Study) -> Section {
    let range = |measure, more: Scheme, less, paper: [f64; 2]| {
        let over = format!("{}, all settings of the paper", PHI_ON_ULTRA.name());
        let (places, paper) = (&[PHI_ON_ULTRA], paper.map(Some));
        Range { figure: "§5.8", measure, over, places, settings: &TOLD, more: &[more], less, paper }.rows(study)
    };
    let mut rows = range(Measure::Latency, Scheme::All, Scheme::Gpu, FASTER);
    rows.extend(range(Measure::Energy, Scheme::Gpu, Scheme::All, ENERGY));
    rows.extend(power(study));
    rows.extend(TOLD.map(|setting| {
        let run =
            Ratio { measure: Measure::Latency, place: PHI_ON_ULTRA, setting, more: Scheme::All, less: Scheme::Gpu };
        run.row(study, "A.3", Some(FASTER[0]))
    }));
    rows.push(operation());
    Section {
        id: "gpu",
        title: "The GPU as a reference (§5.8, A.3)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        ..Section::default()
    }
}

const PROSE: [&str; 2] = [
    "Everything on the GPU, experts with the rows that they are given: what 19 TFLOPS and 640 GB/s, 0.7 and 0.8 of the vendor's \
     peaks, come to. The paper's GPU is 1.26 times as fast in a run: either its runtime reaches a small part of that, or the run \
     is bound by something else; which run it is, is not said.",
    "The powers of the GPU and of the NPU in the profile are those of A.3, so that their ratio is no prediction. The operation \
     of A.3 is not told either; here it is a group of eight experts with 64 slots each, which comes near its 38 ms on the NPU.",
];

/// Watts of the GPU over those of all, lowest and highest.
fn power(study: &Study) -> Vec<Row> {
    let watts = |cell: &Cell| cell.prefill.energy.joules() / cell.prefill.seconds;
    let ratios = move |view: View<'_>, choose: Choose| {
        let ratio = |setting| {
            let cell = |scheme| view.cell(PHI_ON_ULTRA, setting, scheme);
            Some(watts(cell(Scheme::Gpu)?) / watts(cell(Scheme::All)?))
        };
        TOLD.into_iter().filter_map(ratio).reduce(choose)
    };
    let row = |(name, choose, paper): (&str, Choose, f64)| {
        let what = study.setting(&format!("{}, all settings of the paper", PHI_ON_ULTRA.name()));
        Row::new("§5.8", what, format!("GPU over all, power, {name}"), Of::Times)
            .computed(study.sweep.estimate(|view| ratios(view, choose)), study.prompts(1024))
            .paper(Paper::Is(paper))
            .note("the powers of the units are the paper's own")
    };
    let ends: [(&str, Choose, f64); 2] = [("lowest", f64::min, POWER[0]), ("highest", f64::max, POWER[1])];
    ends.map(row).into()
}

fn operation() -> Row {
    let costs = Costs::new(&Machine::Ultra.soc(), &Assumptions::NOMINAL, Target::PhiMoe);
    let ms = |unit| (costs.launch(unit) + costs.experts(unit, 8, 64)).as_millis_f64();
    let ratio = ms(Unit::Npu) / ms(Unit::Gpu);
    Row::new("A.3", "M2 Ultra, 8 experts of Phi-3.5-MoE with 64 slots", "NPU over GPU, time of an operation", Of::Times)
        .computed(Some(Estimate::exact(ratio)), 1)
        .paper(Paper::Is((OPERATION[1] / OPERATION[0] * 100.0).round() / 100.0))
        .note(format!(
            "{:.1} and {:.1} ms; the paper has {} and {}",
            ms(Unit::Npu),
            ms(Unit::Gpu),
            OPERATION[1],
            OPERATION[0]
        ))
}
