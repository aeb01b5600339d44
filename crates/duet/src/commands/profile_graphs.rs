//! `duet profile --device`: measures a device's graphs, and chooses how they are exchanged while a prompt is read.

use crate::bad_input::BadInput;
use crate::cli::{GraphProfileArgs, ProfileArgs};
use crate::failure::{graph_profile_error, print};
use crate::offloading;
use crate::progress::eprintln_quiet;
use anyhow::Context;
use duet_bench::load;
use duet_model::Model;
use duet_offload::GraphUse;
use duet_offload::switching::{
    Demand, GraphBudget, GraphCosts, GraphProfile, GraphProfileError, Measuring, Placement, ShapeCost, Swept,
};
use duet_openvino::Activations;
use duet_scheduler::progressive::Point;
use duet_types::{Bytes, Nanos, Tokens};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// What graphs of a shape cost. What is said of all layers is extrapolated from those that were measured.
#[derive(Debug, Serialize)]
struct ShapeLine {
    setting: &'static str,
    rows: u32,
    n: usize,
    layers: usize,
    measured_layers: usize,
    /// All layers over all rows, after no position.
    pass_ms: f64,
    /// More for each position.
    per_position_us: f64,
    /// All layers, in one load.
    load_ms: f64,
    /// What each load takes however few layers it has.
    load_fixed_ms: f64,
    /// All layers.
    compile_ms: f64,
    /// All layers, in the cache.
    bytes: u64,
}

/// A way to cut the model, and what it comes to over all requests.
#[derive(Debug, Serialize)]
struct CandidateLine {
    setting: &'static str,
    blocks: usize,
    g1: u32,
    g2: u32,
    total_ms: f64,
    ready_ms: f64,
    stalled_ms: f64,
    peak_bytes: u64,
    chosen: bool,
}

/// Does nothing if there is no device, or one without graphs.
pub(super) fn profile(model: &Arc<Model>, arguments: &ProfileArgs, folder: Option<&Path>) -> anyhow::Result<()> {
    let Some(name) = arguments.graphs.device.as_ref().filter(|name| name.takes_graphs()) else { return Ok(()) };
    let threads = arguments.engine.threads.unwrap_or_else(offloading::cores);
    let device = offloading::opened(name, threads, Activations::ROUNDED)?;
    let cache = offloading::cache(model, &*device, None, GraphUse::Exchanged)?;
    let placement = Placement { device, cache };
    let rows = arguments.graphs.graph_rows.iter().map(|&rows| Tokens(rows as u32)).collect();
    let measuring = Measuring { rows, ..Measuring::default() };
    let demand = demand(model, &arguments.graphs)?;
    let mut progress = |what: &str| eprintln_quiet(&format!("profile: {what}"));
    let swept = GraphProfile::measure(model, &placement, &measuring, demand, &mut progress).map_err(failure)?;
    if let Some(folder) = folder {
        let path = swept.profile.save(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
        eprintln_quiet(&format!("profile: written to {}", path.display()));
    }
    print(&if arguments.json { lines(&swept)? } else { page(&name.to_string(), &swept) })
}

fn demand(model: &Model, arguments: &GraphProfileArgs) -> anyhow::Result<Demand> {
    let budget = arguments.graph_memory.map_or(GraphBudget::SetAndATenth, GraphBudget::Bytes);
    if arguments.workload.is_empty() {
        return Ok(Demand::mixed(model.config().context, budget));
    }
    Ok(Demand::of(load::lengths(model, &arguments.workload)?, budget))
}

fn failure(error: GraphProfileError) -> anyhow::Error {
    match error {
        GraphProfileError::Shapes(_) => BadInput(format!("--graph-rows: {error}")).into(),
        error => graph_profile_error(error),
    }
}

fn lines(swept: &Swept) -> anyhow::Result<String> {
    let costs = swept.profile.costs();
    let shapes = costs.shapes().iter().map(|shape| serde_json::to_string(&shape_line(costs, shape)));
    let candidates = swept.choice.points.iter().map(|point| serde_json::to_string(&candidate_line(swept, point)));
    let lines = shapes.chain(candidates).map(|line| Ok(line? + "\n"));
    lines.collect()
}

fn shape_line(costs: &GraphCosts, shape: &ShapeCost) -> ShapeLine {
    let whole = shape.of_block(costs.layers());
    ShapeLine {
        setting: "shape",
        rows: shape.rows.0,
        n: shape.samples,
        layers: costs.layers(),
        measured_layers: costs.measured(),
        pass_ms: whole.pass.empty.as_millis_f64(),
        per_position_us: whole.pass.per_position.as_millis_f64() * 1e3,
        load_ms: whole.load.as_millis_f64(),
        load_fixed_ms: shape.load.fixed.as_millis_f64(),
        compile_ms: shape.compile.as_millis_f64() * costs.layers() as f64,
        bytes: whole.bytes.0,
    }
}

fn candidate_line(swept: &Swept, point: &Point) -> CandidateLine {
    CandidateLine {
        setting: "candidate",
        blocks: point.candidate.blocks,
        g1: point.candidate.rows.prefill.0,
        g2: point.candidate.rows.decode.0,
        total_ms: point.total.as_millis_f64(),
        ready_ms: point.ready.as_millis_f64(),
        stalled_ms: point.stalled.as_millis_f64(),
        peak_bytes: point.peak.0,
        chosen: point.candidate == swept.profile.candidate(),
    }
}

fn page(device: &str, swept: &Swept) -> String {
    let costs = swept.profile.costs();
    let mut page = format!(
        "graphs of {device}: {} of {} layers measured, all of them extrapolated\n\
         {:>5} {:>10} {:>16} {:>9} {:>12} {:>11} {:>10}\n",
        costs.measured(),
        costs.layers(),
        "rows",
        "pass",
        "1000 positions",
        "load",
        "each load",
        "compile",
        "size"
    );
    for shape in costs.shapes() {
        let line = shape_line(costs, shape);
        page += &format!(
            "{:>5} {:>7.1} ms {:>13.1} ms {:>6.0} ms {:>9.2} ms {:>8.0} ms {:>10}\n",
            line.rows,
            line.pass_ms,
            line.per_position_us,
            line.load_ms,
            line.load_fixed_ms,
            line.compile_ms,
            Bytes(line.bytes).to_string()
        );
    }
    page + &table(swept)
}

fn table(swept: &Swept) -> String {
    let demand = swept.profile.demand();
    let of = |request: &duet_scheduler::progressive::Use| format!("{}+{}", request.prompt.rows, request.passes);
    let uses: Vec<String> = demand.uses.iter().map(of).collect();
    let mut page = format!(
        "prompts and passes of their answers: {}; graphs within {}\n{:>6} {:>4} {:>4} {:>11} {:>11} {:>11} {:>10}\n",
        uses.join(", "),
        demand.budget.bytes(swept.profile.costs()),
        "blocks",
        "G1",
        "G2",
        "total",
        "ready",
        "waits",
        "graphs"
    );
    let mut points: Vec<&Point> = swept.choice.points.iter().collect();
    points.sort_by_key(|point| point.total);
    for point in points {
        let ms = |time: Nanos| time.as_millis_f64();
        let line = candidate_line(swept, point);
        page += &format!(
            "{:>6} {:>4} {:>4} {:>8.0} ms {:>8.0} ms {:>8.0} ms {:>10}{}\n",
            line.blocks,
            line.g1,
            line.g2,
            ms(point.total),
            ms(point.ready),
            ms(point.stalled),
            point.peak.to_string(),
            if line.chosen { "  chosen" } else { "" }
        );
    }
    page
}
