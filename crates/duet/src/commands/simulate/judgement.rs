//! How near a simulation came to a recorded run, for people and for programs.

use duet_sim::Recorded;
use duet_sim::fidelity::{
    ClassFidelity, Compared, Ends, Fidelity, Figure, PredictionError, Reference, Shape, SpeedSummary, TOLERANCE_PCT,
};
use duet_types::{Class, Stage};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// One JSON object.
pub(super) fn report(recorded: &Recorded, fidelity: &Fidelity) -> Value {
    let mut report = Map::new();
    report.insert("policy".to_owned(), recorded.header.policy.to_string().into());
    report.insert("n".to_owned(), recorded.clients.len().into());
    report.insert("recorded_s".to_owned(), json!((recorded.ended.0 as f64) / 1e9));
    for class in &fidelity.classes {
        report.insert(class_name(class.class).to_owned(), class_report(class));
    }
    report.insert("within".to_owned(), is_within(fidelity).into());
    let stages = fidelity.stages.iter().map(|stage| {
        json!({
            "stage": stage_name(stage.stage),
            "n": stage.n,
            "profiled": error_report(&stage.profiled),
            "corrected": error_report(&stage.corrected),
            "scheduler": error_report(&stage.scheduler),
        })
    });
    report.insert("prediction_error".to_owned(), stages.collect());
    report.insert("shapes".to_owned(), fidelity.shapes.iter().map(shape_report).collect());
    report.insert("busy_s".to_owned(), compared_report(&fidelity.busy_s));
    report.insert("stalled_s".to_owned(), compared_report(&fidelity.stalled_s));
    report.insert("reused_tokens".to_owned(), compared_report(&fidelity.reused));
    if let Some(speed) = &fidelity.speed {
        report.insert("speed".to_owned(), speed_report(speed));
    }
    Value::Object(report)
}

/// Whether every figure of the corrected simulation is within tolerance.
fn is_within(fidelity: &Fidelity) -> bool {
    fidelity.classes.iter().flat_map(|class| &class.figures).all(|(_, compared)| compared.is_within())
}

fn class_report(class: &ClassFidelity) -> Value {
    let mut report = Map::new();
    report.insert("n".to_owned(), class.n.into());
    for (figure, compared) in &class.figures {
        let key = match figure {
            Figure::TtftMean => "ttft_mean_s",
            Figure::LatencyMean => "mean_s",
            Figure::LatencyP90 => "p90_s",
        };
        report.insert(key.to_owned(), compared_report(compared));
    }
    Value::Object(report)
}

fn compared_report(compared: &Compared) -> Value {
    json!({
        "measured": compared.measured,
        "raw": compared.raw,
        "corrected": compared.corrected,
        "raw_pct": compared.raw_pct(),
        "corrected_pct": compared.corrected_pct(),
    })
}

fn error_report(error: &PredictionError) -> Value {
    json!({
        "mean_abs_pct": error.mean_abs_pct,
        "p90_abs_pct": error.p90_abs_pct,
        "time_ratio": error.time_ratio,
    })
}

fn shape_report(shape: &Shape) -> Value {
    json!({
        "stage": stage_name(shape.stage),
        "lanes": shape.lanes,
        "rows": shape.rows,
        "tokens": shape.ends == Ends::Tokens,
        "n": shape.n,
        "measured_s": shape.measured_s,
        "corrected_s": shape.corrected_s,
    })
}

fn speed_report(speed: &SpeedSummary) -> Value {
    let percentiles = |[p10, p50, p90]: [f64; 3]| json!({"p10": p10, "p50": p50, "p90": p90});
    json!({
        "n": speed.n,
        "arithmetic": percentiles(speed.arithmetic),
        "memory": percentiles(speed.memory),
        "given": percentiles(speed.given),
        "reference": reference_name(speed.reference),
    })
}

/// For people.
pub(super) fn page(recorded: &Recorded, fidelity: &Fidelity) -> String {
    let mut page = format!(
        "{} requests in {:.0} s, policy {}\n\n",
        recorded.clients.len(),
        recorded.ended.0 as f64 / 1e9,
        recorded.header.policy
    );
    figures(&mut page, fidelity);
    speed(&mut page, fidelity.speed.as_ref());
    prediction(&mut page, fidelity);
    whys(&mut page, fidelity);
    page
}

fn figures(page: &mut String, fidelity: &Fidelity) {
    line(page, format_args!("{:<26} {:>9} {:>18} {:>18}", "seconds", "measured", "raw", "drift-corrected"));
    for class in &fidelity.classes {
        for (figure, compared) in &class.figures {
            let name = format!("{} {}, n {}", class_name(class.class), figure.name(), class.n);
            let verdict = if compared.is_within() { "within" } else { "OUTSIDE" };
            let row = format!(
                "{name:<34} {:>8.3} {:>8.3} {:>8} {:>8.3} {:>8}  {verdict} {TOLERANCE_PCT:.0} %",
                compared.measured,
                compared.raw,
                percent(compared.raw_pct()),
                compared.corrected,
                percent(compared.corrected_pct())
            );
            line(page, format_args!("{row}"));
        }
    }
}

fn speed(page: &mut String, speed: Option<&SpeedSummary>) {
    let Some(speed) = speed else {
        return line(page, format_args!("\nno probe is in the log: nothing is corrected"));
    };
    let shown = |[p10, p50, p90]: [f64; 3]| format!("{p50:.2} ({p10:.2} to {p90:.2})");
    line(
        page,
        format_args!(
            "\nthe machine against {} when kernels were launched, median (tenth to ninetieth percentile), by {} probes:\n\
             arithmetic {}, reading {}, lanes had all of their cores {} of the time",
            reference_name(speed.reference),
            speed.n,
            shown(speed.arithmetic),
            shown(speed.memory),
            shown(speed.given)
        ),
    );
}

fn prediction(page: &mut String, fidelity: &Fidelity) {
    line(page, format_args!("\npredicted against measured time of kernels: mean error, ninetieth percentile"));
    for stage in &fidelity.stages {
        let shown = |error: &PredictionError| format!("{:.0} %, {:.0} %", error.mean_abs_pct, error.p90_abs_pct);
        let (profiled, corrected) = (shown(&stage.profiled), shown(&stage.corrected));
        let scheduler = shown(&stage.scheduler);
        let (name, n) = (stage_name(stage.stage), stage.n);
        let row =
            format!("{name:<8} {n:>7}  as profiled {profiled}; drift-corrected {corrected}; as launched {scheduler}");
        line(page, format_args!("{row}"));
    }
}

/// Where the simulation is wrong, and why as far as the log can tell.
fn whys(page: &mut String, fidelity: &Fidelity) {
    line(page, format_args!("\nwhere it is wrong"));
    let total: f64 = fidelity.shapes.iter().map(|shape| shape.measured_s).sum();
    let missed: f64 = fidelity.shapes.iter().map(Shape::missed_s).sum();
    line(
        page,
        format_args!(
            "kernels took {total:.1} s, {:+.1} % against the drift-corrected prediction; sizes that missed most:",
            missed / f64::max(total - missed, 1e-9) * 100.0
        ),
    );
    for shape in fidelity.shapes.iter().take(SHAPES) {
        let (stage, lanes, rows) = (stage_name(shape.stage), shape.lanes, shape.rows);
        let ends = if shape.ends == Ends::Tokens { "to its tokens" } else { "a part of it" };
        let ratio = shape.measured_s / shape.corrected_s.max(1e-9);
        let row = format!(
            "  {stage:<8} {rows:>4} to {:<4} rows, {lanes} lanes, {ends:<13} {:>7} kernels  {:>7.2} s of {:>7.2} s  x{ratio:.2}",
            2 * rows - 1,
            shape.n,
            shape.missed_s(),
            shape.measured_s,
        );
        line(page, format_args!("{row}"));
    }
    compared(page, "lanes busy, s", &fidelity.busy_s);
    compared(page, "requests wait and no lane runs, s", &fidelity.stalled_s);
    compared(page, "prompt tokens that kept KV saved", &fidelity.reused);
}

fn compared(page: &mut String, name: &str, compared: &Compared) {
    let Compared { measured, raw, corrected } = compared;
    line(page, format_args!("{name}: measured {measured:.1}, raw {raw:.1}, drift-corrected {corrected:.1}"));
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes everything.
    let _ = writeln!(page, "{text}");
}

fn percent(pct: Option<f64>) -> String {
    pct.map_or_else(|| "-".to_owned(), |pct| format!("{pct:+.1} %"))
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Reactive => "reactive",
        Class::Proactive => "proactive",
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Prefill => "prefill",
        Stage::Decode => "decode",
        Stage::Verify => "verify",
    }
}

fn reference_name(reference: Reference) -> &'static str {
    match reference {
        Reference::Profile => "its profile",
        Reference::FirstProbes => "the first probes of the run",
    }
}

/// Sizes of kernels that are shown to people.
const SHAPES: usize = 8;
