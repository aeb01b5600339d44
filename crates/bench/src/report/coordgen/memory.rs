//! Peak memory: weights, keys and values, activations, and what drafting holds. (CoordGen §4.3, Figure 12)

use super::assumptions::Assumptions;
use super::graph_blocks::Cut;
use super::phones::{Phone, Target};
use super::schedules::Schedule;
use super::static_passes::{Graph, Heads, Passes};
use super::study::Study;
use crate::report::outcome::Estimate;
use crate::report::row::{Paper, Row, Unit};
use crate::report::section::{Entry, Section, Table};
use crate::traces::{RequestTrace, TaskTrace};
use duet_scheduler::progressive::{Pair, Role};
use duet_sim::ModelShape;
use duet_speculate::Method;
use duet_types::Bytes;

/// The paper's, of Qwen2.5-1.5B: in MB, the others in GB.
const COORDGEN_MB: f64 = 3140.0;
const NPU_VANILLA: [f64; 2] = [3.05, 3.12];
const CPU_VANILLA: f64 = 6.0;
/// What the drafter of EAGLE adds, over all models.
const EAGLE: [f64; 2] = [0.84, 1.22];
/// What CoordGen adds at most.
const OVERHEAD: f64 = 0.5;

pub(super) fn section(study: &Study) -> Section {
    let rows = Target::ALL.into_iter().flat_map(|target| rows(study, target));
    Section {
        id: "memory",
        title: "Memory (§4.3, Figure 12)",
        prose: PROSE.map(str::to_owned).into(),
        rows: rows.collect(),
        tables: vec![table(study)],
        ..Section::default()
    }
}

const PROSE: [&str; 3] = [
    "Weights in 8 bits, keys and values in half precision for the longest request, activations of a prefill graph's layer, and \
     what the drafters of the longest request and the history of its task hold, which is counted as it lies in memory here. \
     Where CPU and NPU both compute, each has its weights. The paper's 3.05 GB for a model of 1.54 GB of weights are twice as \
     much: the runtime's own copies and buffers, of which it says nothing, are not in the prediction.",
    "The paper's overhead is that of its calibration tree and database, below 500 MB; here four successors are kept for each \
     token of the prompt, and no tree is built.",
    "Each graph holds the weights of its block. While graphs are exchanged in place one of each block is resident, as with one \
     graph for both stages; with room for one graph more the largest block is there twice, and with both graphs everything. The \
     figure is the most that the plan for the longest request has at once.",
];

fn gb(bytes: f64) -> f64 {
    bytes / 1e9
}

fn longest(study: &Study) -> u32 {
    let requests = study.traces.iter().flat_map(|trace| &trace.requests);
    requests.map(|request| (request.prompt + request.output).0).max().unwrap_or_default()
}

/// Weights, keys and values, activations.
fn plain(shape: &ModelShape, longest: u32) -> f64 {
    let rows = f64::from(Graph::PREFILL.0);
    let widths = shape.hidden * 2 + (shape.heads + 2 * shape.kv_heads) * shape.head_dim + 2 * shape.ffn;
    let activations = rows * widths as f64 * HALF;
    let Bytes(weights) = shape.weight_bytes();
    let Bytes(position) = shape.kv_bytes();
    weights as f64 + f64::from(longest) * position as f64 + activations
}

/// Bytes of an activation.
const HALF: f64 = 2.0;

/// What drafts are made of: the most that a request holds, and the history of its task.
fn drafting(study: &Study, method: Method) -> f64 {
    let of_task = |trace: &TaskTrace| {
        let held = |request: &RequestTrace| request.by(method).bytes.0;
        trace.history_bytes.0 + trace.requests.iter().map(held).max().unwrap_or_default()
    };
    study.traces.iter().map(of_task).max().unwrap_or_default() as f64
}

/// A layer and a head of its own.
fn eagle(shape: &ModelShape) -> f64 {
    let heg = shape.heg();
    heg.qkv.weight_bytes + heg.ffn.weight_bytes + heg.head.weight_bytes
}

fn rows(study: &Study, target: Target) -> Vec<Row> {
    let shape = target.shape();
    let plain = plain(&shape, longest(study));
    let drafting = drafting(study, Method::CoordGen);
    let Bytes(weights) = shape.weight_bytes();
    let is_told = target == Target::Qwen15;
    let extra = |schedule| more_graphs(target, longest(study), schedule);
    let row = |quantity: &str, bytes: f64, paper: Option<Paper>| {
        let row = Row::new("§4.3", study.setting(target.name()), quantity, Unit::Gigabytes)
            .computed(Some(Estimate::exact(gb(bytes))), study.n());
        paper.map_or(row.clone(), |paper| row.paper(paper))
    };
    let told = |paper: Paper| is_told.then_some(paper);
    vec![
        row("memory, NPU vanilla", plain, told(Paper::Between(NPU_VANILLA[0], NPU_VANILLA[1]))),
        row("memory, CPU vanilla", plain + weights as f64, told(Paper::AtLeast(CPU_VANILLA))),
        row("memory, CoordGen", plain + drafting + extra(Schedule::Greedy), told(Paper::Is(COORDGEN_MB / 1e3))),
        row("memory, CoordGen, room for one graph more", plain + drafting + extra(Schedule::Beside), None),
        row("memory, CoordGen, both graphs resident", plain + drafting + extra(Schedule::Both), None),
        row("memory that drafting adds, CoordGen", drafting, Some(Paper::AtMost(OVERHEAD))),
        row("memory that the drafter adds, EAGLE", eagle(&shape), Some(Paper::Between(EAGLE[0], EAGLE[1]))),
    ]
}

/// What graphs take at most while they are exchanged, beyond one of each block.
fn more_graphs(target: Target, longest: u32, schedule: Schedule) -> f64 {
    let passes = Passes::new(&Phone::K60Pro.soc(), &target.shape().heg(), &Assumptions::NOMINAL);
    let blocks = Cut::paper(Pair { prefill: Heads::All, decode: Heads::All }).profile(&passes);
    let Bytes(peak) = schedule.timeline(&blocks, longest).peak;
    peak.saturating_sub(blocks.bytes(Role::Prefill).0) as f64
}

fn table(study: &Study) -> Table {
    let methods = [Method::Pld, Method::Sam, Method::CoordGen, Method::Duet];
    let names: Vec<String> = methods.iter().map(|method| format!("{method}, kB a request")).collect();
    let head: Vec<&str> = ["task", "history, kB"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table =
        Table::new("What drafting holds, as it was counted: the largest request, and the history of all", &head);
    for trace in &study.traces {
        let kilo = |bytes: Bytes| Entry::number(Some(bytes.0 as f64 / 1e3), 0);
        let most = |method| trace.requests.iter().map(|request| request.by(method).bytes).max().unwrap_or_default();
        let mut row = vec![Entry::text(trace.title()), kilo(trace.history_bytes)];
        row.extend(methods.map(|method| kilo(most(method))));
        table.push(row);
    }
    table
}
