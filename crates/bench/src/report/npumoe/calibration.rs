//! Where rows go: how unevenly, and whether others go to the same experts. (NPUMoE §2, §3.3, §5.8, Figures 5 and 18)

use super::Study;
use super::routing::{LayerRoutes, Routers, Routing};
use crate::plot::{Axis, Mark, Point, Series, lines};
use crate::report::outcome::Estimate;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Entry, Plot, Section, Table};
use duet_moe::LayerCounts;

/// Overlap@4 and @8 on unseen inputs, and that across data sets, in per cent.
const UNSEEN: [(usize, f64); 2] = [(4, 86.0), (8, 94.0)];
const ACROSS: f64 = 65.2;
/// For which K that is, the paper does not say.
const ACROSS_K: usize = 4;

pub(super) fn section(study: &Study) -> Section {
    let mut rows: Vec<Row> = Vec::new();
    for routers in Routers::ALL {
        let routing = study.read.by(routers);
        rows.extend(UNSEEN.map(|(k, paper)| overlap_row(study, routing, k, paper)));
        rows.extend(across_row(study, routing));
        rows.push(imbalance_row(study, routing));
    }
    Section {
        id: "routing",
        title: "Where rows go (§2, §3.3, §5.8)",
        prose: PROSE.map(str::to_owned).into(),
        rows,
        tables: Routers::ALL.into_iter().map(|routers| table(study.read.by(routers))).collect(),
        plots: plot(study).into_iter().collect(),
    }
}

const PROSE: [&str; 3] = [
    "Imbalance is the busiest expert's rows over the mean, of the prompts that were calibrated on; Overlap@K is the part of their \
     K busiest experts that are also the K busiest of the prompts that were run on, as the mean over layers with the lowest and \
     the highest layer. By chance it is K over the number of experts. The paper has imbalance as a plot only (Figure 5).",
    "Across data sets: the mean over pairs of data sets of what was calibrated on.",
    "Routers that were fitted to rows divide what the rows are about into clusters of one size, and send each row to those next \
     to it. Trained routers differ: they serve the model's loss, and a penalty keeps them balanced over far more texts.",
];

fn overlaps(routing: &Routing, of: impl Fn(&LayerRoutes) -> f64) -> Option<Estimate> {
    let all: Vec<f64> = routing.layers.iter().map(|layer| of(layer) * 100.0).collect();
    spread(&all)
}

/// The mean, the lowest and the highest.
fn spread(all: &[f64]) -> Option<Estimate> {
    let value = (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)?;
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Estimate { value, low, high })
}

fn chance(routers: Routers, k: usize) -> String {
    format!("{:.1} by chance", k as f64 / f64::from(routers.experts()) * 100.0)
}

fn overlap_row(study: &Study, routing: &Routing, k: usize, paper: f64) -> Row {
    let setting = study.setting(&routing.routers.name());
    let row = Row::new("§5.8", setting, format!("Overlap@{k} on unseen prompts"), Unit::Percent)
        .computed(overlaps(routing, |layer| layer.calibrated.overlap(&layer.seen, k)), study.read.rows)
        .note(chance(routing.routers, k));
    beside(row, routing.routers, paper)
}

/// The paper's figures of overlap are of Phi-3.5-MoE: it says so of those across data sets.
fn beside(row: Row, routers: Routers, paper: f64) -> Row {
    if routers == Routers::Few { row.paper(Paper::Is(paper)) } else { row }
}

/// Nothing where there is one data set only.
fn across_row(study: &Study, routing: &Routing) -> Option<Row> {
    let across = |layer: &LayerRoutes| {
        let pairs: Vec<f64> = pairs(&layer.by_set).map(|(one, other)| one.overlap(other, ACROSS_K)).collect();
        pairs.iter().sum::<f64>() / pairs.len().max(1) as f64
    };
    (study.sets.len() > 1).then(|| {
        let setting = study.setting(&routing.routers.name());
        let row = Row::new("§5.8", setting, format!("Overlap@{ACROSS_K} across data sets"), Unit::Percent)
            .computed(overlaps(routing, across), study.read.calibrated)
            .note(chance(routing.routers, ACROSS_K));
        beside(row, routing.routers, ACROSS)
    })
}

fn pairs(sets: &[LayerCounts]) -> impl Iterator<Item = (&LayerCounts, &LayerCounts)> {
    sets.iter().enumerate().flat_map(|(at, one)| sets[at + 1..].iter().map(move |other| (one, other)))
}

fn imbalance_row(study: &Study, routing: &Routing) -> Row {
    let all: Vec<f64> = routing.layers.iter().map(|layer| layer.calibrated.imbalance()).collect();
    Row::new("Fig. 5", study.setting(&routing.routers.name()), "imbalance ratio, mean layer", Unit::Times)
        .computed(spread(&all), study.read.calibrated)
}

fn table(routing: &Routing) -> Table {
    let head = ["layer", "imbalance", "imbalance, run", "busiest 4 %", "busiest 8 %", "Overlap@4 %", "Overlap@8 %"];
    let mut table = Table::new(routing.routers.name(), &head);
    for (index, LayerRoutes { calibrated, seen, .. }) in routing.layers.iter().enumerate() {
        let per_cent = |share: f64| Entry::number(Some(share * 100.0), 1);
        table.push(vec![
            Entry::text(index),
            Entry::number(Some(calibrated.imbalance()), 2),
            Entry::number(Some(seen.imbalance()), 2),
            per_cent(calibrated.busiest_share(4)),
            per_cent(calibrated.busiest_share(8)),
            per_cent(calibrated.overlap(seen, 4)),
            per_cent(calibrated.overlap(seen, 8)),
        ]);
    }
    table
}

fn plot(study: &Study) -> Option<Plot> {
    let series = Routers::ALL.map(|routers| {
        let layers = study.read.by(routers).layers.iter().enumerate();
        let point = |(layer, routes): (usize, &LayerRoutes)| Point {
            x: layer as f64,
            y: routes.calibrated.imbalance(),
            mark: Mark::Dot,
        };
        Series { name: routers.name(), points: layers.map(point).collect() }
    });
    let (x, y) = (Axis::Linear { label: "layer" }, Axis::Linear { label: "imbalance" });
    Plot::of("The busiest expert's rows over the mean, layer by layer", lines(&x, &y, &series))
}
