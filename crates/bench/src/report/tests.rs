//! The report as a whole, on traces of half a minute: what it holds, not what it predicts.

use super::*;
use crate::html::assert_well_formed;
use serde_json::Value;

/// The page, the rows as they are written, and the rows.
struct Made {
    page: String,
    json: String,
    rows: Vec<Row>,
}

fn make() -> Made {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new/report");
    let rows = agent_xpu(Plan::smoke(), &out, &|_| {}).unwrap();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    Made { page: read("index.html"), json: read("report.json"), rows }
}

fn papers(made: &Made, figure: &str, quantity: &str, setting: &str) -> Vec<String> {
    let rows = made.rows.iter().filter(|row| {
        row.figure() == figure && row.quantity().starts_with(quantity) && row.setting().starts_with(setting)
    });
    rows.filter_map(|row| row.json().get("paper").map(Value::to_string)).collect()
}

/// Making it takes most of a minute, so that all that is to be seen of it is looked at in one test.
#[test]
fn the_report_is_whole_and_has_the_same_bytes_each_time() {
    let made = make();
    let again = make();
    assert!(again.page == made.page, "the pages differ");
    assert!(again.json == made.json, "the rows differ");
    assert_every_figure(&made);
    assert_papers_figures(&made);
    assert_self_contained(&made.page);
}

/// The rows are an array in which every figure is.
fn assert_every_figure(made: &Made) {
    let rows: Vec<Value> = serde_json::from_str(&made.json).unwrap();
    assert_eq!(rows.len(), made.rows.len());
    for row in &rows {
        for key in ["figure", "setting", "quantity", "unit"] {
            assert!(row[key].as_str().is_some_and(|text| !text.is_empty()), "{key} of {row}");
        }
        assert_eq!(
            row.get("deviation").is_some(),
            row.get("paper").is_some() && row.get("predicted").is_some(),
            "{row}"
        );
        // A reduction without the load that it was found at says nothing.
        let against = row["quantity"].as_str().unwrap().contains("against");
        assert!(!against || row.get("baseline_utilisation_pct").is_some(), "{row}");
    }
    for figure in [
        "§4.4",
        "§6.1",
        "§6.2",
        "§6.3",
        "Fig. 10",
        "Fig. 11",
        "Fig. 12",
        "Fig. 13",
        "beyond",
        "occupancy",
        "limits",
        "flows",
        "sensitivity",
    ] {
        assert!(rows.iter().any(|row| row["figure"] == figure), "{figure}");
    }
}

/// Which figure of the paper stands beside which row: they are typed in there and here, and nothing predicts them.
fn assert_papers_figures(made: &Made) {
    let papers = |figure: &str, quantity: &str, setting: &str| papers(made, figure, quantity, setting);
    assert_eq!(papers("§6.2", "growth", "3B, 3"), ["19.0"]);
    assert_eq!(papers("§6.2", "growth", "8B, 3"), ["49.0"]);
    for (setting, reduction) in [
        ("3B, 1 + 6", "-91.61"),
        ("3B, 3 + 6", "-93.84"),
        ("3B, 5 + 6", "-96.01"),
        ("8B, 1 + 6", "-96.23"),
        ("8B, 3 + 6", "-96.01"),
        ("8B, 5 + 6", "-96.7"),
    ] {
        assert_eq!(papers("Fig. 11", "reactive mean", setting), [reduction], "{setting}");
    }
    assert_eq!(papers("Fig. 11", "proactive mean", "8B, 5 + 6"), ["[-58.7,-6.1]"]);
    assert_eq!(papers("Fig. 10", "requests", "3B, SAMSum, agent-xpu over igpu-batching"), ["[2.0,2.4]"]);
    assert_eq!(papers("Fig. 10", "requests", "8B, CNN/DailyMail, agent-xpu over serial"), ["[1.4,4.9]"]);
    assert_eq!(papers("Fig. 10", "requests", "8B, CNN/DailyMail, agent-xpu over cpu-batching"), ["3.9"]);
    assert_eq!(papers("Fig. 12", "reactive pending prefill", "3B"), ["0.048"]);
    assert_eq!(papers("Fig. 13", "iGPU utilisation", "3B, 3 + 6 a minute, agent-xpu, against serial"), ["-32.5"]);
    assert_eq!(papers("Fig. 13", "iGPU utilisation", "3B, 3 + 6 a minute, agent-xpu, against igpu"), ["-37.1"]);
    assert_eq!(papers("Fig. 13", "energy", "8B, 3 + 6 a minute, agent-xpu, against igpu"), ["-26.8"]);
    assert_eq!(papers("§4.4", "preemption, longest", "3B"), ["100.0"]);
    // They are of the paper's own system.
    assert!(made.rows.iter().all(|row| !row.setting().ends_with(", duet") || row.json().get("paper").is_none()));
}

/// The page needs nothing else.
fn assert_self_contained(page: &str) {
    assert_well_formed(page);
    for reference in ["src=", "href=\"http", "url(", "@import", "<script", "<link", "<img"] {
        assert!(!page.contains(reference), "{reference}");
    }
    for part in ["<svg", "prefers-color-scheme:dark", "igpu.gemm_tflops", "Agent.xpu §6.4", "preemption"] {
        assert!(page.contains(part), "{part}");
    }
    // Every link leads to a section.
    for link in page.split("href=\"#").skip(1) {
        let id = link.split('"').next().unwrap();
        assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_anything_is_run() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let ran = |what: &str| panic!("ran {what}");
    let error = agent_xpu(Plan::smoke(), &file.path().join("out"), &ran).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().starts_with("--out "), "{error}");
    let unknown = "novel".parse::<ReportName>().unwrap_err();
    assert_eq!(unknown, "no report is called `novel`; there are agent-xpu, coordgen and npumoe");
}
