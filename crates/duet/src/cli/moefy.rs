//! Flags of `duet moefy`.

use clap::Args;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// `duet moefy`
#[derive(Debug, Args)]
pub(crate) struct MoefyArgs {
    /// Which model; a dense one of architecture llama or qwen2
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Experts that each layer's feed-forward block becomes
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) experts: u16,
    /// Experts that a token goes to
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) top_k: u16,
    /// Neurons of the expert that every token goes to; 0 for none [default: as many as leave 32 to each other]
    #[arg(long, value_name = "N")]
    pub(crate) shared: Option<u32>,
    /// Where to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Prompts to carve and to measure on, as JSON lines, instead of the samples that come with duet
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) data: Vec<PathBuf>,
    /// Tokens to carve on; more are better, and take more memory
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(256..=65536))]
    pub(crate) tokens: u32,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroU16>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
