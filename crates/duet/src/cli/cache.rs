//! `duet cache`.

use clap::{Args, Subcommand};

/// `duet cache`
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

/// What is done with the cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what is kept: models, their packed weights, and graphs compiled for devices
    List(CacheListArgs),
    /// Remove packed weights and compiled graphs, which are made again when they are needed; models stay
    Prune(CachePruneArgs),
}

/// `duet cache list`
#[derive(Debug, Args)]
pub(crate) struct CacheListArgs {
    /// A JSON object for each file
    #[arg(long)]
    pub(crate) json: bool,
}

/// `duet cache prune`
#[derive(Debug, Args)]
pub(crate) struct CachePruneArgs {
    /// Only what was not used for so many days
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    pub(crate) unused: u32,
    /// A JSON object for each file that was removed
    #[arg(long)]
    pub(crate) json: bool,
}
