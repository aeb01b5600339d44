//! Flags of `duet bench agents`.

use super::{DeviceArgs, EngineArgs};
use clap::Args;
use std::path::PathBuf;

/// `duet bench agents`
#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Which model; not needed with --url
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Prompts with tools and the calls that are right, one JSON object a line
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) workload: PathBuf,
    /// Prompts at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = super::count())]
    pub(crate) limit: usize,
    /// Measure this OpenAI-compatible server instead of one in this process
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How the model runs
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Where it runs
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
