//! Flags of `duet bench perplexity` and `duet bench quality`.

use super::Kv;
use crate::offloading::DeviceName;
use clap::Args;
use duet_types::Bytes;
use std::path::PathBuf;

/// What is read, and by whom.
#[derive(Debug, Args)]
pub(crate) struct ReadingArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Tokens of a chunk; 512 by default, or those of --base
    #[arg(long, value_name = "TOKENS", value_parser = super::count())]
    pub(crate) context: Option<usize>,
    /// Chunks at most; all of the text by default
    #[arg(long, value_name = "N", value_parser = super::count())]
    pub(crate) chunks: Option<usize>,
    /// How keys and values are stored
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) kv: Kv,
    /// Do linear work on this device, by its name in `duet devices`; without, the cores do all
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<DeviceName>,
    /// Memory for the experts of a mixture; those that it has no room for stay on disk, in the packed weights, and are read
    /// when a token goes to them [default: all are in memory]
    #[arg(long, value_name = "BYTES", value_parser = super::bytes, conflicts_with = "device")]
    pub(crate) expert_memory: Option<Bytes>,
    /// Threads to compute with; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `duet bench perplexity`
#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// A text
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Keep what this reading says in this file, for `bench quality --base`
    #[arg(long, value_name = "FILE")]
    pub(crate) write_base: Option<PathBuf>,
}

/// `duet bench quality`
#[derive(Debug, Args)]
pub(crate) struct QualityArgs {
    #[command(flatten)]
    pub(crate) reading: ReadingArgs,
    /// A text
    #[arg(long, value_name = "FILE", required_unless_present = "base")]
    pub(crate) text: Option<PathBuf>,
    /// Compare with this reference, a file of `llama-perplexity --kl-divergence-base` or of --write-base; without, with
    /// the model's weights read in plain floats, which takes a minute and more a chunk
    #[arg(long, value_name = "FILE", conflicts_with = "write_base")]
    pub(crate) base: Option<PathBuf>,
    /// Keep what the plain floats say in this file, for --base
    #[arg(long, value_name = "FILE")]
    pub(crate) write_base: Option<PathBuf>,
}
