//! The report of a small random model: what it holds, not what it predicts.

use super::*;
use crate::html::assert_well_formed;
use crate::report::{Row, coordgen as write};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_types::Tokens;
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

struct Made {
    page: String,
    json: String,
    rows: Vec<Row>,
}

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    MODEL.get_or_init(|| Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn make(names: &[&str], threads: usize) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &&str| {
        let line = |index: usize| {
            format!(
                "{{\"kind\":\"reactive\",\"messages\":[{{\"role\":\"user\",\"content\":\"ab ab {index} {name}\"}}]}}\n"
            )
        };
        let path = directory.path().join(name).with_extension("jsonl");
        std::fs::write(&path, (0..3).map(line).collect::<String>()).unwrap();
        path
    };
    let workloads: Vec<PathBuf> = names.iter().map(file).collect();
    let tracer = Tracer { model: model(), kv_format: KvFormat::F16, threads, output: Tokens(16) };
    let out = directory.path().join("new/report");
    let rows = write(&CoordGen { tracer, workloads: &workloads, limit: 2 }, &out, &|_| {}).unwrap();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    Made { page: read("index.html"), json: read("report.json"), rows }
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| make(&["coord_summary", "notes"], 1))
}

fn found(figure: &str, quantity: &str, setting: &str) -> Vec<Value> {
    let rows = made().rows.iter().filter(|row| {
        row.figure() == figure && row.quantity().starts_with(quantity) && row.setting().starts_with(setting)
    });
    rows.map(Row::json).collect()
}

#[test]
fn the_same_report_has_the_same_bytes() {
    let again = make(&["coord_summary", "notes"], 2);
    assert!(again.page == made().page, "the pages differ");
    assert!(again.json == made().json, "the rows differ");
}

#[test]
fn the_rows_have_every_figure_and_say_whose_acceptance_it_is() {
    let rows: Vec<Value> = serde_json::from_str(&made().json).unwrap();
    assert_eq!(rows.len(), made().rows.len());
    for row in &rows {
        assert_eq!(
            row.get("deviation").is_some(),
            row.get("paper").is_some() && row.get("predicted").is_some(),
            "{row}"
        );
        let of_shapes_alone = row["figure"] == "§3.3" || row["figure"] == "appendix A";
        let setting = row["setting"].as_str().unwrap();
        assert!(of_shapes_alone || setting.ends_with(&format!("acceptance of {}", model().config().name)), "{row}");
        let figure = |name: &str| row.get(name).and_then(Value::as_f64);
        if let (Some(low), Some(value), Some(high)) = (figure("low"), figure("predicted"), figure("high")) {
            assert!(low <= value && value <= high, "{row}");
        }
    }
    for figure in [
        "Table 2",
        "Table 3",
        "Table 4",
        "sd.npu §3.1",
        "sd.npu §3.2",
        "sd.npu §4.4",
        "§3.2",
        "§3.3",
        "§4.2",
        "§4.3",
        "§4.4",
        "appendix A",
        "serving",
    ] {
        assert!(rows.iter().any(|row| row["figure"] == figure), "{figure}");
    }
}

/// Which figure of the paper stands beside which row: they are typed in there and here, and nothing predicts them.
#[test]
fn the_papers_figures_stand_where_they_belong() {
    let paper = |figure: &str, quantity: &str, setting: &str| -> Vec<String> {
        found(figure, quantity, setting).iter().filter_map(|row| row.get("paper").map(Value::to_string)).collect()
    };
    assert_eq!(paper("Table 4", "tokens a verification, CoordGen", "summary"), ["[2.07,4.21]"]);
    assert_eq!(paper("Table 3", "latency a token, NPU", "8 Gen 2, qwen2.5-1.5b"), ["57.41", "57.41"]);
    assert_eq!(paper("Table 2", "rejections that are missing", "summary"), ["15.4"]);
    assert_eq!(paper("§4.2", "NPU vanilla over CoordGen, latency", "all phones, models and tasks"), ["1.14", "3.81"]);
    assert_eq!(paper("§4.2", "CPU vanilla over CPU-EAGLE, latency", "all"), ["0.56", "1.18"]);
    assert_eq!(paper("§4.3", "memory, CoordGen", "qwen2.5-1.5b"), ["3.14"]);
    assert_eq!(paper("§4.4", "decode of NPU vanilla over that of CoordGen", "8 Elite, llama"), ["[5.25,8.15]"]);
    // What is not of the paper's tasks has nothing beside it.
    assert_eq!(paper("Table 4", "", "notes"), [""; 0]);
}

/// Columns with graph scheduling are held against the paper's; without its task there is nothing to hold.
#[test]
fn graph_columns_are_predicted() {
    let predicted = |column: &str| {
        let rows = found("Table 3", &format!("latency a token, {column}"), "8 Gen 2, qwen2.5-1.5b");
        let exact = rows.iter().find(|row| row["quantity"] == format!("latency a token, {column}")).unwrap();
        assert!(exact.get("deviation").is_some() || column.contains("resident"), "{exact}");
        exact["predicted"].as_f64().unwrap()
    };
    let [graph, drafts, ours] = ["+G", "+G+SD", "ours"].map(predicted);
    assert!(graph > 0.0 && drafts > 0.0 && ours >= predicted("calibration and extension, both graphs resident"));
    let without = make(&["notes"], 1);
    assert!(without.rows.iter().all(|row| row.figure() != "Table 3"));
    assert!(without.page.contains("nothing is predicted"));
}

/// The faster graphs are loaded, the less is left to be waited for; where nothing is exchanged, memory is more.
#[test]
fn what_exchanging_graphs_costs_stands_beside_the_papers() {
    let share = |schedule: &str| {
        let rows = found("§3.2", &format!("switching's share, {schedule}"), "Snapdragon 8 Gen 2, qwen2.5-1.5b");
        ["predicted", "low", "high"].map(|figure| rows[0][figure].as_f64().unwrap())
    };
    let [synchronous, asynchronous, latest, more] =
        ["synchronous", "asynchronous", "latest start", "one graph more"].map(share);
    // The latest start is the best of plans among which the others are, so that it is no worse is not asserted.
    for at in 0..3 {
        assert!(synchronous[at] >= asynchronous[at] && latest[at] >= more[at] && more[at] >= 0.0);
    }
    assert!(synchronous[1] < synchronous[2]);
    let memory = |what: &str| found("§4.3", what, "qwen2.5-1.5b")[0]["predicted"].as_f64().unwrap();
    let [one, more, both] = ["memory, CoordGen", "memory, CoordGen, room", "memory, CoordGen, both"].map(memory);
    assert!(one < more && more < both);
    assert_eq!(found("sd.npu §3.1", "switching's share", "Snapdragon 8 Gen 2")[0]["paper"], 29.0);
}

#[test]
fn the_page_needs_nothing_else() {
    let page = &made().page;
    assert_well_formed(page);
    for reference in ["src=", "href=\"http", "url(", "@import", "<script", "<link", "<img"] {
        assert!(!page.contains(reference), "{reference}");
    }
    for part in ["<svg", "npu.gemm_tflops", "coord_summary (2 requests", "contradictory"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn what_cannot_be_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let tracer = Tracer { model: model(), kv_format: KvFormat::F16, threads: 1, output: Tokens(16) };
    let refused = |text: &str| {
        let file = directory.path().join("some.jsonl");
        std::fs::write(&file, text).unwrap();
        let ask = CoordGen { tracer, workloads: &[file], limit: 2 };
        let error = write(&ask, &directory.path().join("out"), &|_| {}).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        error.to_string()
    };
    assert!(refused("{").contains("line 1"));
    let long = "word ".repeat(1500);
    let line = format!("{{\"kind\":\"reactive\",\"messages\":[{{\"role\":\"user\",\"content\":\"{long}\"}}]}}\n");
    assert!(refused(&line).contains("no prompt fits"));
    assert!(refused("").contains("no prompt fits"));
}
