//! Flags of `duet calibrate`.

use super::bytes;
use clap::Args;
use duet_types::Bytes;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// `duet calibrate`
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Which model; one with experts
    pub(crate) model: String,
    /// Prompts to count on, as JSON lines, instead of the samples that come with duet
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) data: Vec<PathBuf>,
    /// Other prompts, to see whether they go to the same experts
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) against: Vec<PathBuf>,
    /// About how many tokens to count, of --data and of --against each
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(256..=1 << 24))]
    pub(crate) tokens: u32,
    /// Where to write [default: beside the model, as NAME.experts.json]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroU16>,
    /// Memory for experts; those that it has no room for stay on disk, in the packed weights, and are read when a token goes to
    /// them [default: all are in memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) expert_memory: Option<Bytes>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
