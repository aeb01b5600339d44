//! `duet mcp`: its flags.

use super::{DeviceArgs, EngineArgs};
use clap::Args;

/// `duet mcp`
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Where matrix products are done.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
