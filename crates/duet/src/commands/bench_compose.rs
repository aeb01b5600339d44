//! `duet bench compose`: the papers' machine under one load: devices beside the cores by the paper's baselines, the paper's
//! policy and ours, and the cores alone by ours, one after the other.
//!
//! What is recorded is read back: a new scheduler, handed the same events, has to decide the same, and the simulator is given
//! the same requests on the machine as it was measured.

use super::bench_load::{Engines, mixed, page, tell};
use super::simulate::{Arrivals, compared};
use crate::bad_input::BadInput;
use crate::cli::ComposeArgs;
use crate::failure::print;
use duet_bench::load::{self, Background, MixedSettings, Subject, Workload};
use duet_engine::{EngineConfig, PolicyName, replay};
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

pub(super) fn compose(arguments: &ComposeArgs) -> anyhow::Result<()> {
    let load = &arguments.load;
    if load.device.accelerators().next().is_none() {
        return Err(BadInput("bench compose needs --device, once or several times".into()).into());
    }
    if load.url.is_some() || load.curve || load.report.is_some() {
        return Err(BadInput("bench compose takes no --url, --curve or --report".into()).into());
    }
    let workload = Workload::read(&load.workload)?;
    if let Some(folder) = &arguments.record {
        std::fs::create_dir_all(folder).map_err(|error| BadInput(format!("--record {}: {error}", folder.display())))?;
    }
    let mut engines = Engines::open(load)?;
    engines.config.watts.clone_from(&arguments.watts);
    let config = load.scheduling.apply(load.engine.config());
    let of_cores = arguments.watts.iter().filter(|(lane, _)| lane.starts_with("cpu")).cloned().collect();
    let cores = Engines { config: EngineConfig { watts: of_cores, ..config }, model: engines.model.clone() };
    let policies = if load.policy.is_empty() { COMPARED.to_vec() } else { load.policy.clone() };
    let beside = policies.into_iter().map(|policy| (DEVICES, engines.of(policy)));
    for (executors, subject) in beside.chain([("cores alone", cores.of(PolicyName::Duet))]) {
        let log = arguments.record.as_ref().filter(|_| executors == DEVICES);
        let log = log.map(|folder| folder.join(format!("{}.log", subject.name())));
        measure(executors, &subject, &workload, arguments, log)?;
    }
    Ok(())
}

/// What devices and cores are compared by: all in turn, the GPU as a server of its own, the paper's policy, and ours.
const COMPARED: [PolicyName; 4] =
    [PolicyName::Serial, PolicyName::IgpuBatching, PolicyName::AgentXpu, PolicyName::Duet];

const DEVICES: &str = "devices and cores";

/// One set of executors under one policy.
fn measure(
    executors: &str,
    subject: &Subject,
    workload: &Workload,
    arguments: &ComposeArgs,
    log: Option<PathBuf>,
) -> anyhow::Result<()> {
    let settings = with_twice(MixedSettings { record: log.clone(), ..mixed(&arguments.load) });
    let report = load::run(subject, workload, &settings, &tell)?;
    let in_flight = matches!(settings.backgrounds.first(), Some(Background::InFlight(_)));
    let background = if in_flight { Arrivals::KeptInFlight } else { Arrivals::AsRecorded };
    let repeated = log.as_deref().map(|log| repeated(log, background)).transpose()?;
    if arguments.load.json {
        let mut line = serde_json::to_value(&report)?;
        line["executors"] = executors.into();
        if let Some(repeated) = repeated {
            line["recorded"] = repeated;
        }
        return print(&(line.to_string() + "\n"));
    }
    print(&format!("{executors}, {}{}\n", page(&report), repeated.as_ref().map(told).unwrap_or_default()))
}

/// With a background twice as heavy, so that growth with load is seen.
fn with_twice(settings: MixedSettings) -> MixedSettings {
    let twice = settings.backgrounds.first().map(|background| match *background {
        Background::Rate(rate) => Background::Rate(2.0 * rate),
        Background::InFlight(count) => Background::InFlight(2 * count),
    });
    MixedSettings { backgrounds: settings.backgrounds.iter().copied().chain(twice).collect(), ..settings }
}

/// What comes of a log when it is replayed, and simulated.
fn repeated(log: &Path, background: Arrivals) -> anyhow::Result<Value> {
    let shown = log.display().to_string();
    let replayed = replay(BufReader::new(File::open(log)?)).map_err(|error| anyhow::anyhow!("{shown}: {error}"))?;
    let mut repeated = json!({ "log": shown, "events": replayed.events, "commands": replayed.commands });
    if let Some(simulated) = compared(log, background)? {
        repeated["simulated"] = simulated;
    }
    Ok(repeated)
}

/// For people.
fn told(repeated: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let mut page = format!(
        "replayed   {} events led to the same {} commands; recorded in {}\n",
        number(&repeated["events"]),
        number(&repeated["commands"]),
        repeated["log"].as_str().unwrap_or_default()
    );
    for class in ["reactive", "proactive"] {
        let latency = &repeated["simulated"][class]["mean_s"];
        if let (Some(measured), Some(simulated)) = (latency["measured"].as_f64(), latency["corrected"].as_f64()) {
            page += &format!("simulated  {class} mean {simulated:.3} s where {measured:.3} s were measured\n");
        }
    }
    page
}
