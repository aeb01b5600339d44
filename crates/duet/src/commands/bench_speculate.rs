//! `duet bench speculate`: what drafting is worth.

use crate::bad_input::BadInput;
use crate::cli::SpeculateArgs;
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::session;
use duet_bench::load::LoadError;
use duet_bench::speculate::{self, Line, Settings};
use duet_engine::EngineConfig;
use duet_types::Tokens;

pub(super) fn speculate(arguments: &SpeculateArgs) -> anyhow::Result<()> {
    let contenders = arguments.contenders()?;
    let model = session::open(&arguments.model, &arguments.engine)?;
    let config = EngineConfig {
        draft: session::open_draft(&arguments.draft, &arguments.engine)?,
        verify: arguments.verify.into(),
        calibrate: arguments.calibrate.into(),
        ..arguments.engine.config()
    };
    let settings = Settings {
        files: arguments.workload.clone(),
        contenders,
        limit: arguments.limit,
        output: Tokens(arguments.max_tokens),
        temperature: arguments.temperature,
        config,
    };
    let mut printed = Ok(());
    let mut different = Vec::new();
    let mut tell = |line: &Line| {
        let text = if arguments.json { serde_json::to_string(line).map_err(Into::into) } else { Ok(page(line)) };
        let result = text.and_then(|text| print(&(text + "\n")));
        if printed.is_ok() {
            printed = result;
        }
        if line.identical == Some(false) {
            different.push(format!("{} on {}", line.method, line.workload));
        }
    };
    let progress = |what: &str| eprintln_quiet(&format!("bench: {what}"));
    match speculate::run(&model, &settings, &progress, &mut tell) {
        Ok(()) if different.is_empty() => printed,
        Ok(()) => anyhow::bail!("answers differ from those of plain decode: {}", different.join(", ")),
        Err(error) if error.is_bad_input() => Err(BadInput(error.to_string()).into()),
        Err(LoadError::Engine(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
    }
}

fn page(line: &Line) -> String {
    let [p10, p50, p90] = line.speedup_p10_p50_p90.unwrap_or([f64::NAN; 3]);
    let spread = if p50.is_nan() { String::new() } else { format!(" ({p10:.2} {p50:.2} {p90:.2})") };
    format!(
        "{:14} {:10} {:4} accepts {:.2}{}, {:.2} ms a token, {:.2} x{spread}{}, whole request {:.2} x{}{}{}, n {}{}",
        line.workload,
        line.method,
        line.history.unwrap_or("-"),
        line.accept_len,
        line.rows.map(|rows| format!(" of {rows:.1} rows")).unwrap_or_default(),
        line.ms_per_token,
        line.speedup,
        rarely(line),
        line.request_speedup,
        line.draft_us_per_step.map(|micros| format!(", {micros:.0} us a draft")).unwrap_or_default(),
        line.draft_model_ms_per_step.map(|ms| format!(", {ms:.1} ms of the draft model")).unwrap_or_default(),
        line.extra_bytes.map(|bytes| format!(", {:.1} MB", bytes as f64 / 1e6)).unwrap_or_default(),
        line.n,
        match line.identical {
            None => ", simulated",
            Some(true) => ", identical",
            Some(false) => ", NOT IDENTICAL",
        },
    )
}

fn rarely(line: &Line) -> String {
    let text = |speedup| format!(", where next to nothing is accepted {speedup:.2} x of {}", line.rarely_accepted_n);
    line.rarely_accepted_speedup_p50.map(text).unwrap_or_default()
}
