//! The report of small random models, and the timeline's sums: what must hold, not what is predicted.

use super::assumptions::{Assumptions, CpuExperts, Room};
use super::chunks::{Chunk, Launch};
use super::costs::{Costs, Position};
use super::layer::{attention, experts};
use super::machines::{Machine, Place};
use super::schemes::Scheme;
use super::targets::Target;
use super::usage::Usage;
use super::*;
use crate::html::assert_well_formed;
use crate::report::{Row, npumoe as write};
use duet_model::LoadOptions;
use duet_types::Nanos;
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

/// A chunk of few experts: two choices a row, some on the NPU, some on the CPU, some dropped.
fn chunk() -> impl Strategy<Value = Chunk> {
    let launch = (1_u32..9, 1_u32..9, 0_u32..=100).prop_map(|(experts, tiles, full)| {
        let slots = experts * tiles * 16;
        Launch { experts, capacity: tiles * 16, filled: (slots * full / 100).max(1) }
    });
    let launches = prop::collection::vec(launch, 0..6);
    (launches, prop::collection::vec(1_u32..200, 0..6), 0_u32..50).prop_map(|(launches, on_cpu, dropped)| {
        let mut chunk = Chunk { rows: 0, launches, on_cpu, dropped };
        chunk.rows = chunk.routed().div_ceil(2).max(1);
        chunk
    })
}

fn scheme() -> impl Strategy<Value = Scheme> {
    prop::sample::select(Scheme::ALL.to_vec())
}

fn place() -> impl Strategy<Value = Place> {
    prop::sample::select(Place::all())
}

fn assumptions() -> impl Strategy<Value = Assumptions> {
    (0_u8..=9, 0_u8..=10).prop_map(|(dispatch, fallback)| Assumptions {
        naive_dispatch: f64::from(dispatch) / 10.0,
        naive_fallback: f64::from(fallback) / 10.0,
        room: Room::Chunk,
        cpu_experts: CpuExperts::Slots,
        ..Assumptions::NOMINAL
    })
}

/// What the model asks for, whoever computes it.
fn asked_for(usage: &Usage) -> f64 {
    usage.macs.npu + usage.macs.elsewhere + usage.macs.dropped
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// No lane is busy for longer than the whole takes, and the whole takes no longer than one lane after the other.
fn lanes_fit(usage: &Usage) -> bool {
    let npu = usage.launch + usage.graph;
    let cpu = usage.products + usage.one_core();
    usage.span >= npu.max(cpu).max(usage.gpu) && usage.span <= npu + cpu + usage.gpu
}

proptest! {
    #[test]
    fn experts_compute_what_the_model_asks_for_and_nothing_twice(
        place in place(), scheme in scheme(), assumptions in assumptions(), chunk in chunk(),
    ) {
        let costs = Costs::new(&place.machine.soc(), &assumptions, place.target);
        // The GPU has no groups.
        let chunk = if scheme == Scheme::Gpu { Chunk { launches: Vec::new(), dropped: 0, ..chunk } } else { chunk };
        let usage = experts(&costs, scheme, scheme.groups(&assumptions), &chunk);
        prop_assert!(lanes_fit(&usage), "{:?}", usage);
        let macs = place.target.sizes().expert_macs();
        prop_assert!(near(asked_for(&usage), f64::from(chunk.routed()) * macs));
        prop_assert!(near(usage.macs.padding, f64::from(chunk.slots() - chunk.filled()) * macs));
        prop_assert!(near(usage.macs.dropped, f64::from(chunk.dropped) * macs));
        if matches!(scheme, Scheme::Cpu | Scheme::DenseOnly) {
            prop_assert_eq!((usage.macs.npu, usage.launch), (0.0, Nanos::ZERO));
        }
        if scheme.groups(&assumptions) == schemes::Groups::Npu && scheme != Scheme::Gpu {
            prop_assert!(near(usage.macs.npu, f64::from(chunk.filled()) * macs));
        }
    }

    #[test]
    fn attention_computes_what_the_model_asks_for(
        place in place(), scheme in scheme(), chunk in 1_u32..600, chunks in 1_u32..5,
    ) {
        let costs = Costs::new(&place.machine.soc(), &Assumptions::NOMINAL, place.target);
        let cache = chunk * chunks;
        let mut asked = 0.0;
        for before in (0..cache).step_by(chunk as usize) {
            let usage = attention(&costs, scheme, Position { rows: chunk, before, cache });
            prop_assert!(lanes_fit(&usage));
            prop_assert!(usage.macs.padding >= 0.0);
            asked += asked_for(&usage);
        }
        let (rows, sizes) = (f64::from(cache), place.target.sizes());
        let all = rows * sizes.projection_macs() + rows * (rows + 1.0) / 2.0 * sizes.pair_macs();
        prop_assert!(near(asked, all));
    }

    /// Dropping and padding aside, more work never takes less time.
    #[test]
    fn a_row_more_never_takes_less(place in place(), scheme in scheme(), chunk in chunk()) {
        let costs = Costs::new(&place.machine.soc(), &Assumptions::NOMINAL, place.target);
        let groups = scheme.groups(&Assumptions::NOMINAL);
        let less = experts(&costs, scheme, groups, &chunk);
        let mut more = chunk.clone();
        more.rows += 1;
        more.on_cpu.push(2);
        let more = experts(&costs, scheme, groups, &more);
        prop_assert!(more.span >= less.span && asked_for(&more) > asked_for(&less));
    }
}

/// The parts of a chunk whose times can be computed by hand.
#[test]
fn lanes_overlap_and_wait_as_they_should() {
    let costs = Costs::new(&Machine::Ultra.soc(), &Assumptions::NOMINAL, Target::PhiMoe);
    let launch = Launch { experts: 8, capacity: 32, filled: 200 };
    let alone = Chunk { rows: 256, launches: vec![launch], on_cpu: Vec::new(), dropped: 0 };
    let beside = Chunk { on_cpu: vec![20, 36], ..alone.clone() };
    let of = |chunk: &Chunk| experts(&costs, Scheme::All, schemes::Groups::Npu, chunk);
    let (alone, beside) = (of(&alone), of(&beside));
    assert!(alone.span > alone.launch + alone.graph);
    // The CPU's experts take less than the graph, and run while it does.
    assert!(beside.products > alone.products && beside.span == alone.span);
    let serial = experts(
        &costs,
        Scheme::Cpu,
        schemes::Groups::Cpu,
        &Chunk { rows: 256, launches: Vec::new(), on_cpu: vec![20, 36], dropped: 0 },
    );
    assert_eq!(serial.span, serial.products + serial.one_core());
}

struct Made {
    page: String,
    json: String,
    rows: Vec<Row>,
}

fn model(name: &str) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    Model::load(&folder.join(format!("golden_{name}.gguf")), &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn make(threads: usize) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new/report");
    let ask = NpuMoe { model: &model("mixtral"), name: "mixtral", workloads: &[], limit: 1, threads };
    let rows = write(&ask, &out, &|_| {}).unwrap();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    Made { page: read("index.html"), json: read("report.json"), rows }
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| make(1))
}

fn found(figure: &str, quantity: &str, setting: &str) -> Vec<Value> {
    let rows = made().rows.iter().filter(|row| {
        row.figure() == figure && row.quantity().starts_with(quantity) && row.setting().starts_with(setting)
    });
    rows.map(Row::json).collect()
}

#[test]
fn the_same_report_has_the_same_bytes() {
    let again = make(2);
    assert!(again.page == made().page, "the pages differ");
    assert!(again.json == made().json, "the rows differ");
}

#[test]
fn the_rows_have_every_figure_and_say_whose_routing_it_is() {
    let rows: Vec<Value> = serde_json::from_str(&made().json).unwrap();
    assert_eq!(rows.len(), made().rows.len());
    for row in &rows {
        assert!(row.get("predicted").is_some(), "{row}");
        assert_eq!(row.get("deviation").is_some(), row.get("paper").is_some(), "{row}");
        let of_shapes_alone = row["quantity"].as_str().unwrap().contains("operation");
        assert!(of_shapes_alone || row["setting"].as_str().unwrap().ends_with("routing of mixtral"), "{row}");
        let figure = |name: &str| row[name].as_f64().unwrap();
        assert!(figure("low") <= figure("predicted") && figure("predicted") <= figure("high"), "{row}");
    }
    for figure in ["§1", "§5.2", "§5.3", "§5.4", "§5.5", "§5.6", "§5.7", "§5.8", "A.2", "A.3", "end to end", "beyond"]
    {
        assert!(rows.iter().any(|row| row["figure"] == figure), "{figure}");
    }
}

/// Which figure of the paper stands beside which row: they are typed in there and here, and nothing predicts them.
#[test]
fn the_papers_figures_stand_where_they_belong() {
    let paper = |figure: &str, quantity: &str, setting: &str| -> Vec<f64> {
        found(figure, quantity, setting).iter().filter_map(|row| row.get("paper")?.as_f64()).collect()
    };
    let phi = "M2 Ultra, Phi-3.5-MoE, prompt 1024, chunk 256";
    assert_eq!(paper("§5.3", "CPU over all, time", phi), [2.07]);
    assert_eq!(paper("§5.3", "naïve over all, time", phi), [5.55]);
    assert_eq!(paper("§5.5", "dense-only over all, CPU cycles", phi), [2.98]);
    assert_eq!(paper("§5.8", "base over all, time", phi), [2.89]);
    assert_eq!(paper("§5.8", "base over TG, energy", phi), [3.74]);
    assert_eq!(paper("§5.4", "naïve over all, energy", "M2 Ultra, Phi-3.5-MoE, prompt 4096,"), [4.71, 5.23]);
    assert_eq!(paper("end to end", "naïve over all, latency", "M2 Ultra"), [3.86]);
    // Nothing of the paper's is on a machine that cannot hold it.
    assert!(made().rows.iter().all(|row| !row.setting().starts_with("M2 Max, Phi-3.5")));
}

#[test]
fn the_page_needs_nothing_else() {
    let page = &made().page;
    assert_well_formed(page);
    for reference in ["src=", "href=\"http", "url(", "@import", "<script", "<link", "<img"] {
        assert!(!page.contains(reference), "{reference}");
    }
    for part in ["<svg", "npu.gemm_tflops", "sample, reactive (", "fixed expert shape", "fitted to its rows"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn too_few_prompts_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        let file = directory.path().join("some.jsonl");
        std::fs::write(&file, text).unwrap();
        let ask = NpuMoe { model: &model("mixtral"), name: "mixtral", workloads: &[file], limit: 1, threads: 1 };
        let error = write(&ask, &directory.path().join("out"), &|_| {}).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        error.to_string()
    };
    assert!(refused("{").contains("line 1"));
    let line = "{\"kind\":\"reactive\",\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}]}\n";
    assert!(refused(&line.repeat(4)).contains("give more prompts"));
}
