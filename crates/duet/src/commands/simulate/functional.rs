//! Requests of a real model: its tokens are real, time is virtual.

use super::figures::{Line, page};
use super::machine::Machine;
use crate::cli::SimulateArgs;
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::session;
use duet_bench::functional::{Answer, RealModel, simulate as simulate_functional};
use duet_bench::load::{Rates, Workload, plan};
use duet_engine::profile::heg;
use duet_types::Nanos;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::{Duration, Instant};

pub(super) fn simulate(arguments: &SimulateArgs, model: &str) -> anyhow::Result<()> {
    let machine = Machine::find(&arguments.profile)?;
    let workload = Workload::read(&arguments.workload)?;
    let model = session::open_in_memory(model, &arguments.engine)?;
    let window = Duration::from_secs_f64(arguments.minutes * 60.0);
    let rates = Rates { reactive: arguments.reactive, proactive: arguments.proactive };
    let config = arguments.engine.config();
    let threads = config.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let real = RealModel { model: &model, kv_format: config.kv_format, threads };
    let heg = heg(&model, config.kv_format);
    let mut lines = Vec::new();
    for policy in arguments.policies() {
        let plan = plan(&model, &workload, rates, window, arguments.seed)?;
        eprintln_quiet(&format!("simulate: {policy}, {} requests", plan.clients.len()));
        let simulation = machine.simulation(&heg, policy, &arguments.tuning);
        let begun = Instant::now();
        let window = Nanos::from(window);
        let functional = simulate_functional(real, plan, &simulation, window)?;
        let name = model.config().name.as_str();
        let line = Line::new(policy, machine.name(), name, &functional.seen, window, begun.elapsed());
        lines.push(line.with_tokens(digest(&functional.answers)));
    }
    if !arguments.json {
        return print(&page(&lines));
    }
    lines.iter().try_for_each(|line| print(&(serde_json::to_string(line)? + "\n")))
}

/// Of all answers in the order of their requests: equal if every token is.
fn digest(answers: &[Answer]) -> String {
    let mut hash = Sha256::new();
    for answer in answers {
        hash.update((answer.tokens.len() as u64).to_le_bytes());
        answer.tokens.iter().for_each(|token| hash.update(token.0.to_le_bytes()));
    }
    let mut hex = String::new();
    hash.finalize().iter().for_each(|byte| {
        let _ = write!(hex, "{byte:02x}");
    });
    hex
}
