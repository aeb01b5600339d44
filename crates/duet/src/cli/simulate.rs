//! `duet simulate`: its flags.

use clap::Args;
use std::path::PathBuf;

/// `duet simulate`
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// What `duet serve --event-log` wrote: the same requests come again, in virtual time, on the machine of its profile
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
