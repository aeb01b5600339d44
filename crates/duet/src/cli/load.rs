//! `duet bench load`: its flags and what may be written there.

use super::{DeviceArgs, DraftArgs, EngineArgs, SchedulingArgs, count, number, policy};
use clap::Args;
use duet_bench::load::{Part, Rates};
use duet_engine::PolicyName;
use std::path::PathBuf;

/// `duet bench load`
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Which model; not needed with --url
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// JSONL files of prompts [default: samples that come with duet]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) workload: Vec<PathBuf>,
    /// Reactive requests a minute
    #[arg(long, value_name = "RATE", default_value_t = 12.0, value_parser = rate)]
    pub(crate) reactive: f64,
    /// Proactive requests a minute [default: 16 in flight]
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "in_flight")]
    pub(crate) proactive: Option<f64>,
    /// Proactive requests that are always under way
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) in_flight: Option<u16>,
    /// Time of each setting
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often the settings take turns [default: a turn takes half a minute]
    #[arg(long, value_name = "N", value_parser = count())]
    pub(crate) rounds: Option<usize>,
    /// Same seed, same arrivals and prompts
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
    /// What decides; with --curve several [default: duet; of `compose`: serial, igpu-batching, agent-xpu and duet]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = policy)]
    pub(crate) policy: Vec<PolicyName>,
    /// Measure this OpenAI-compatible server instead of an engine in this process
    #[arg(long, value_name = "URL", value_parser = url, conflicts_with_all = ["curve", "report"])]
    pub(crate) url: Option<String>,
    /// Tell the server who waits, by `service_tier`
    #[arg(long)]
    pub(crate) tier: bool,
    /// Latency over load, for every policy and peer
    #[arg(long, conflicts_with_all = ["report", "reactive", "proactive", "in_flight"])]
    pub(crate) curve: bool,
    /// The curve's loads: reactive + proactive requests a minute
    #[arg(long, value_name = "R+P,..", value_delimiter = ',', requires = "curve", value_parser = point)]
    pub(crate) points: Vec<Rates>,
    /// Another server in the curve; may be given several times
    #[arg(long, value_name = "NAME=URL", value_parser = peer)]
    pub(crate) peer: Vec<Peer>,
    /// Run all measurements and write report.json and index.html into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["reactive", "proactive", "in_flight", "seconds", "rounds"])]
    pub(crate) report: Option<PathBuf>,
    /// Take up to 90 minutes for the report instead of 15
    #[arg(long, requires = "report")]
    pub(crate) full: bool,
    /// Only these sections of the report: interference, curve, conservation, preemption, starvation, cases, scheduler
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', requires = "report", value_parser = part)]
    pub(crate) section: Vec<Part>,
    /// Only see that the report can be made; its figures mean nothing
    #[arg(long, requires = "report", conflicts_with = "full", hide = true)]
    pub(crate) smoke: bool,
    /// Print JSON objects, one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Who goes first.
    #[command(flatten)]
    pub(crate) scheduling: SchedulingArgs,
    /// The devices beside the cores.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

impl LoadArgs {
    /// What decides.
    pub(crate) fn policies(&self) -> Vec<PolicyName> {
        if self.policy.is_empty() { vec![PolicyName::Duet] } else { self.policy.clone() }
    }
}

/// A server beside duet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) url: String,
}

fn part(text: &str) -> Result<Part, String> {
    text.parse()
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, 0.1..=86_400.0, "seconds, from 0.1 to 86400")
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1e5, "requests a minute, from 0 to 100000")
}

fn point(text: &str) -> Result<Rates, String> {
    let (reactive, proactive) = text.split_once('+').ok_or("expected two rates, such as 12+60")?;
    Ok(Rates { reactive: rate(reactive.trim())?, proactive: rate(proactive.trim())? })
}

pub(super) fn url(text: &str) -> Result<String, String> {
    let known = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = known.filter(|rest| !rest.is_empty()).ok_or("expected http://HOST:PORT")?;
    // Servers name their API's root, and the paths here begin there.
    let host = host.trim_end_matches('/').trim_end_matches("/v1");
    Ok(text[..text.len() - known.map_or(0, str::len)].to_owned() + host)
}

fn peer(text: &str) -> Result<Peer, String> {
    let (name, address) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected NAME=URL")?;
    Ok(Peer { name: name.to_owned(), url: url(address)? })
}
