//! `duet embed`

use clap::Args;

/// `duet embed`
#[derive(Debug, Args)]
pub(crate) struct EmbedArgs {
    /// Which model: one for embeddings
    pub(crate) model: String,
    /// The texts; `-` reads one from each line of stdin
    #[arg(required = true, value_name = "TEXT")]
    pub(crate) texts: Vec<String>,
    /// Cut texts that are longer than the model reads at once, instead of refusing them
    #[arg(long)]
    pub(crate) truncate: bool,
    /// Threads; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) threads: Option<u16>,
}
