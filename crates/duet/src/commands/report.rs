//! `duet report`: a paper's results, predicted beside the paper's own.

mod routed;

use crate::bad_input::BadInput;
use crate::cli::ReportArgs;
use crate::failure::print;
use crate::models;
use crate::progress::eprintln_quiet;
use crate::session;
use duet_bench::report::{self, CoordGen, NpuMoe, Plan, ReportName, Row};
use duet_bench::traces::Tracer;
use duet_engine::EngineConfig;
use duet_types::Tokens;
use routed::Routed;

pub(super) fn report(arguments: &ReportArgs) -> anyhow::Result<()> {
    check(arguments)?;
    let rows = match arguments.name {
        ReportName::AgentXpu => agent_xpu(arguments)?,
        ReportName::CoordGen => coordgen(arguments)?,
        ReportName::NpuMoe => npumoe(arguments)?,
    };
    if arguments.json {
        return print(&rows.iter().map(|row| row.json().to_string() + "\n").collect::<String>());
    }
    let compared = rows.iter().filter(|row| row.is_compared()).map(|row| format!("{row}\n")).collect::<String>();
    print(&format!("{compared}written to {}\n", arguments.out.join("index.html").display()))
}

/// A flag of another report would be ignored without a word.
fn check(arguments: &ReportArgs) -> Result<(), BadInput> {
    let ReportArgs { seeds, quick, model, workload, limit, .. } = arguments;
    let (report, wrong) = match arguments.name {
        ReportName::AgentXpu => (
            "coordgen or npumoe",
            [("--model", model.is_some()), ("--workload", !workload.is_empty()), ("--limit", limit.is_some())],
        ),
        ReportName::CoordGen | ReportName::NpuMoe => {
            ("agent-xpu", [("--seeds", seeds.is_some()), ("--quick", *quick), ("", false)])
        }
    };
    match wrong.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(BadInput(format!("{flag} is of the report {report}"))),
        None => Ok(()),
    }
}

fn progress(what: &str) {
    eprintln_quiet(&format!("report: {what}"));
}

fn agent_xpu(arguments: &ReportArgs) -> anyhow::Result<Vec<Row>> {
    let seeds = |default: u64| arguments.seeds.map_or(default, u64::from);
    let plan = if arguments.quick { Plan::quick(seeds(QUICK_SEEDS)) } else { Plan::whole(seeds(SEEDS)) };
    Ok(report::agent_xpu(plan, &arguments.out, &progress)?)
}

fn coordgen(arguments: &ReportArgs) -> anyhow::Result<Vec<Row>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let model = session::open_with(arguments.model.as_deref().unwrap_or(models::DEFAULT), None)?;
    let tracer = Tracer { model: &model, kv_format: EngineConfig::default().kv_format, threads, output: OUTPUT_MAX };
    let limit = arguments.limit.map_or(LIMIT, usize::from);
    let ask = CoordGen { tracer, workloads: &arguments.workload, limit };
    Ok(report::coordgen(&ask, &arguments.out, &progress)?)
}

fn npumoe(arguments: &ReportArgs) -> anyhow::Result<Vec<Row>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let name = arguments.model.as_deref().unwrap_or(models::DEFAULT);
    let routed = Routed::open(name, &arguments.workload, threads, &progress)?;
    let limit = arguments.limit.map_or(LONG_PROMPTS, usize::from);
    let ask = NpuMoe { model: &routed.model, name: &routed.name, workloads: &arguments.workload, limit, threads };
    Ok(report::npumoe(&ask, &arguments.out, &progress)?)
}

/// As many as the spread of a figure needs.
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 1;
/// Prompts of 4096 tokens, half a minute of a small model.
const LONG_PROMPTS: usize = 3;
/// Some minutes of a small model for each task.
const LIMIT: usize = 20;
/// The longest answer: more than nearly all references of the paper's tasks have.
const OUTPUT_MAX: Tokens = Tokens(160);
