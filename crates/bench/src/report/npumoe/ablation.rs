//! What each technique brings. (NPUMoE §5.8, Figure 17)

use super::Study;
use super::claims::{Measure, PHI_ON_ULTRA, Ratio, TOLD};
use super::plans::Plan;
use super::schemes::Scheme;
use crate::plot::{Axis, Mark, Point, Series, lines};
use crate::report::row::Row;
use crate::report::section::{Entry, Plot, Section, Table};

/// Which is how many times which, by the paper, which does not say for which prompt and chunk.
const TOLD_RATIOS: [(Measure, Scheme, Scheme, f64); 4] = [
    (Measure::Latency, Scheme::Base, Scheme::All, 2.89),
    (Measure::Latency, Scheme::Groups, Scheme::All, 1.09),
    (Measure::Energy, Scheme::Base, Scheme::Groups, 3.74),
    (Measure::Energy, Scheme::Tiers, Scheme::Groups, 1.31),
];
const STEPS: [Scheme; 5] = [Scheme::Base, Scheme::Tiers, Scheme::Groups, Scheme::All, Scheme::Duet];

pub(super) fn section(study: &Study) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    for setting in TOLD {
        rows.extend(TOLD_RATIOS.map(|(measure, more, less, paper)| {
            Ratio { measure, place: PHI_ON_ULTRA, setting, more, less }.row(study, "§5.8", Some(paper))
        }));
    }
    Section {
        id: "ablation",
        title: "Ablation (§5.8, Figure 17)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: vec![table(study)],
        plots: plot(study).into_iter().collect(),
    }
}

const PROSE: [&str; 3] = [
    "base has a graph for each expert and one capacity for all of a layer; T gives capacities in three tiers, TG groups up to \
     eight experts of a tier, all leaves groups to the CPU whose rows are not worth a launch. What has no room is dropped in all \
     four, the least salient first.",
    "The paper does not say for which prompt and chunk its figures are, so they stand beside every setting, and not which single \
     capacity base has: the busiest expert's expected load here, the mean load or the whole chunk at the ends of the sweep. \
     With the whole chunk, which drops nothing, every expert computes all rows, and base takes three times as long as all \
     or more: the paper's 2.89 is of that kind. What is compared with what is then decided by the one reading.",
    "Launches are 16 a layer and 0.8 ms each by the fit of the paper's Table 5, against more than 60 ms of products and weights \
     that grouping does not change: grouping Phi-3.5-MoE's large experts cannot bring more than a tenth or two. It \
     brings most where experts are small. The order is the paper's: all is fastest, and TG takes least energy, since what all \
     leaves to the CPU takes more there.",
];

fn table(study: &Study) -> Table {
    let head = ["scheme", "setting", "s", "mJ a token", "launches a chunk", "padding %", "dropped %", "on the CPU %"];
    let mut table = Table::new(format!("{}: each step", PHI_ON_ULTRA.name()), &head);
    for setting in TOLD {
        for scheme in STEPS {
            let cell = study.sweep.nominal().cell(PHI_ON_ULTRA, setting, scheme);
            let mut row = vec![Entry::text(scheme.name()), Entry::text(setting.name())];
            row.push(Entry::number(cell.map(|cell| cell.prefill.seconds), 2));
            let energy = cell.map(|cell| cell.prefill.energy.joules() / f64::from(setting.prompt) * 1e3);
            row.push(Entry::number(energy, 1));
            let plan = scheme.plan(&super::assumptions::Assumptions::NOMINAL);
            row.extend(dispatched(study, plan, setting.chunk).map(|share| Entry::number(share, 1)));
            table.push(row);
        }
    }
    table
}

/// Launches a chunk and layer, then padding of slots, dropped rows and those on the CPU, in per cent.
fn dispatched(study: &Study, plan: Plan, chunk: u32) -> [Option<f64>; 4] {
    let Some(at) = study.sweep.at(PHI_ON_ULTRA) else { return [None; 4] };
    let sums = at.by(plan, chunk).sums(at.stand_for());
    [sums.launches / sums.chunks, sums.padding(), sums.drop_rate(), sums.cpu_share()].map(Some)
}

fn plot(study: &Study) -> Option<Plot> {
    let series = TOLD.map(|setting| {
        let point = |(x, scheme): (usize, &Scheme)| {
            let cell = study.sweep.nominal().cell(PHI_ON_ULTRA, setting, *scheme)?;
            let seconds = cell.prefill.seconds / f64::from(setting.prompt) * 1e3;
            Some(Point { x: x as f64, y: seconds, mark: Mark::Dot })
        };
        Series { name: setting.name(), points: STEPS.iter().enumerate().filter_map(point).collect() }
    });
    let x = Axis::Names { label: "", names: STEPS.map(|scheme| scheme.name().to_owned()).into() };
    let y = Axis::Linear { label: "ms a token of the prompt" };
    Plot::of(format!("{}: time for each token of the prompt", PHI_ON_ULTRA.name()), lines(&x, &y, &series))
}
