//! `duet bench compose`: the papers' machine under one load: devices beside the cores by the paper's baselines, the paper's
//! policy and ours, and the cores alone by ours, one after the other.
//!
//! What is recorded is read back: a new scheduler, handed the same events, has to decide the same, and the simulator is given
//! the same requests on the machine as it was measured.

use super::bench_load::{Engines, mixed, page, tell};
use super::simulate::{Arrivals, compared};
use crate::bad_input::BadInput;
use crate::cli::{ComposeArgs, SchedulingArgs, Setting};
use crate::failure::print;
use crate::session;
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
    let usual = arguments.setting();
    let policies = if load.policy.is_empty() { COMPARED.to_vec() } else { load.policy.clone() };
    let swept = |policy: PolicyName| policy != PolicyName::Duet && !arguments.sweep.is_empty();
    let mut opened: Option<(Setting, Engines)> = None;
    for policy in policies {
        let settings = if swept(policy) { arguments.sweep.clone() } else { vec![usual] };
        let mut means = Vec::new();
        for setting in settings {
            // One model in memory at a time, and devices with graphs for these chunks.
            let engines = match opened.take().filter(|(of, _)| *of == setting) {
                Some((_, engines)) => engines,
                None => engines(arguments, setting)?,
            };
            let subject = engines.of(policy);
            let log = arguments.record.as_ref().map(|folder| folder.join(log_name(&subject, setting, usual)));
            means.push((setting, measure((DEVICES, setting), &subject, &workload, arguments, log)?));
            opened = Some((setting, engines));
        }
        tell_best(policy, &means);
    }
    drop(opened);
    let config = load.scheduling.apply(load.engine.config());
    let of_cores = arguments.watts.iter().filter(|(lane, _)| lane.starts_with("cpu")).cloned().collect();
    let model = session::open(&load.model, &load.engine)?;
    let cores = Engines { config: EngineConfig { watts: of_cores, ..config }, model };
    measure(("cores alone", usual), &cores.of(PolicyName::Duet), &workload, arguments, None).map(drop)
}

/// Devices and cores with such a chunk and batch.
fn engines(arguments: &ComposeArgs, Setting { chunk, batch }: Setting) -> anyhow::Result<Engines> {
    let scheduling = SchedulingArgs { chunk, batch, ..arguments.load.scheduling.clone() };
    let mut engines = Engines::open_with(&arguments.load, &scheduling)?;
    engines.config.watts.clone_from(&arguments.watts);
    Ok(engines)
}

fn log_name(subject: &Subject, setting: Setting, usual: Setting) -> String {
    match setting {
        setting if setting == usual => format!("{}.log", subject.name()),
        Setting { chunk, batch } => format!("{}-{chunk}x{batch}.log", subject.name()),
    }
}

/// Says on stderr with which setting a person waited least beside the background.
fn tell_best(policy: PolicyName, means: &[(Setting, Option<f64>)]) {
    let measured = means.iter().filter_map(|(setting, mean)| Some((setting, (*mean)?)));
    let best = measured.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| means.len() > 1);
    if let Some((Setting { chunk, batch }, mean)) = best {
        tell(&format!("{policy} is best with a chunk of {chunk} and a batch of {batch}: reactive mean {mean:.3} s"));
    }
}

/// What devices and cores are compared by: all in turn, the GPU as a server of its own, the paper's policy, and ours.
const COMPARED: [PolicyName; 4] =
    [PolicyName::Serial, PolicyName::IgpuBatching, PolicyName::AgentXpu, PolicyName::Duet];

const DEVICES: &str = "devices and cores";

/// One set of executors under one policy. Returns how long a person waits on average beside the background.
fn measure(
    (executors, Setting { chunk, batch }): (&str, Setting),
    subject: &Subject,
    workload: &Workload,
    arguments: &ComposeArgs,
    log: Option<PathBuf>,
) -> anyhow::Result<Option<f64>> {
    let settings = with_twice(MixedSettings { record: log.clone(), ..mixed(&arguments.load) });
    let report = load::run(subject, workload, &settings, &tell)?;
    let in_flight = matches!(settings.backgrounds.first(), Some(Background::InFlight(_)));
    let background = if in_flight { Arrivals::KeptInFlight } else { Arrivals::AsRecorded };
    let repeated = log.as_deref().map(|log| repeated(log, background)).transpose()?;
    if arguments.load.json {
        let mut line = serde_json::to_value(&report)?;
        line["executors"] = executors.into();
        (line["chunk"], line["batch"]) = (chunk.into(), batch.into());
        if let Some(repeated) = repeated {
            line["recorded"] = repeated;
        }
        print(&(line.to_string() + "\n"))?;
    } else {
        let repeated = repeated.as_ref().map(told).unwrap_or_default();
        print(&format!("{executors}, chunk {chunk}, batch {batch}, {}{repeated}\n", page(&report)))?;
    }
    Ok(report.reactive.mean_s)
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
