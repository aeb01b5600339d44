//! `duet simulate`: its flags.

use super::{EngineArgs, count, number, scheduling::mechanism};
use clap::Args;
use duet_engine::{Mechanism, PolicyName};
use std::path::PathBuf;

/// `duet simulate`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SimulateArgs {
    /// Which machine: a name, a TOML file like those that come with duet, or what `duet profile` wrote
    #[arg(long, value_name = "NAME|FILE", default_value = "intel-core-ultra-5-125h")]
    pub(crate) profile: String,
    /// Which model, by its shape
    #[arg(long, value_name = "NAME", default_value = "llama-3.2-3b")]
    pub(crate) model: String,
    /// Reactive requests a minute
    #[arg(long, value_name = "RATE", default_value_t = 3.0, value_parser = rate)]
    pub(crate) reactive: f64,
    /// Proactive requests a minute
    #[arg(long, value_name = "RATE", default_value_t = 6.0, value_parser = rate)]
    pub(crate) proactive: f64,
    /// For how long requests come; all are served to their end
    #[arg(long, value_name = "MINUTES", default_value_t = 15.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// What decides: a name, several, or `all`
    #[arg(long, value_name = "NAME,..|all", value_delimiter = ',', default_value = "duet", value_parser = policies)]
    pub(crate) policy: Vec<Policies>,
    /// Same seed, same requests, same decisions
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub(crate) seed: u64,
    /// Lengths of prompts and answers, a line `data-set class input output` each [default: the paper's data sets]
    #[arg(long, value_name = "FILE")]
    pub(crate) lengths: Option<PathBuf>,
    /// Only these data sets, for both classes those that have any
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub(crate) data_set: Vec<String>,
    /// What the policies may do
    #[command(flatten)]
    pub(crate) tuning: TuningArgs,
    /// Run this model for real in virtual time: its tokens, its ends of answers
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["model", "lengths", "data_set"])]
    pub(crate) functional: Option<String>,
    /// Run what `duet serve --event-log` wrote again, on the machine of its profile, and say how near it comes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["profile", "model", "lengths", "data_set", "functional"])]
    pub(crate) replay: Option<PathBuf>,
    /// The background of --replay was kept in flight: its requests come when those before them have ended
    #[arg(long, requires = "replay")]
    pub(crate) in_flight: bool,
    /// JSONL files of prompts for --functional [default: samples that come with duet]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "functional")]
    pub(crate) workload: Vec<PathBuf>,
    /// Print JSON objects, one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// How to run the model of --functional.
    #[command(flatten, next_help_heading = "With --functional")]
    pub(crate) engine: EngineArgs,
}

/// What differs from the profile's own settings.
#[derive(Debug, Args)]
pub(crate) struct TuningArgs {
    /// Rows of a chunk, or of an iteration of continuous batching [default: the profile's]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) chunk: Option<u32>,
    /// Requests that decode together at most [default: 32]
    #[arg(long, value_name = "N", value_parser = count())]
    pub(crate) batch: Option<usize>,
    /// Members of agent-xpu's reactive batches (`B_cap`) [default: 3]
    #[arg(long, value_name = "N", value_parser = count())]
    pub(crate) batch_cap: Option<usize>,
    /// How much longer background riders may make a reactive token under duet, as a share of it
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) stretch: Option<f64>,
    /// Background requests that are older are overdue [default: 30]
    #[arg(long, value_name = "S", value_parser = age)]
    pub(crate) proactive_age: Option<f64>,
    /// Share of the iGPU that may be used; the rest is the display's
    #[arg(long, value_name = "SHARE", value_parser = occupancy)]
    pub(crate) occupancy: Option<f64>,
    /// Switch mechanisms off, to see what they are worth
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = mechanism)]
    pub(crate) without: Vec<Mechanism>,
}

/// One policy, or all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Policies {
    /// This one.
    One(PolicyName),
    /// Every one.
    All,
}

impl SimulateArgs {
    /// The policies that were asked for, each once, in their order.
    pub(crate) fn policies(&self) -> Vec<PolicyName> {
        let mut names = Vec::new();
        for policies in &self.policy {
            match policies {
                Policies::One(name) => names.push(*name),
                Policies::All => names.extend(PolicyName::ALL),
            }
        }
        let mut seen = Vec::new();
        names.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(*name);
            is_new
        });
        names
    }
}

fn policies(text: &str) -> Result<Policies, String> {
    if text == "all" { Ok(Policies::All) } else { super::policy(text).map(Policies::One) }
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.0..=6000.0, "requests a minute, from 0 to 6000")
}

fn minutes(text: &str) -> Result<f64, String> {
    number(text, 0.01..=1440.0, "minutes, from 0.01 to 1440")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0..=10.0, "a share, from 0 to 10")
}

fn age(text: &str) -> Result<f64, String> {
    number(text, 0.0..=86_400.0, "seconds, from 0 to 86400")
}

fn occupancy(text: &str) -> Result<f64, String> {
    number(text, 0.01..=1.0, "a share, from 0.01 to 1")
}

const AFTER_HELP: &str = "\
Nothing is run but the scheduler, the same that `duet serve` has: lanes and time are virtual, so a
quarter of an hour takes a fraction of a second. An unknown machine or model is answered with a
list of those there are.";
