//! `duet report`: its flags.

use clap::Args;
use duet_bench::report::ReportName;
use std::path::PathBuf;

/// `duet report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Which paper: agent-xpu
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: ReportName,
    /// Write index.html and report.json into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Traces of each setting, 15 minutes each [default: 5, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) seeds: Option<u8>,
    /// Fewer traces and coarser sweeps, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print report.json on stdout, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

fn name(text: &str) -> Result<ReportName, String> {
    text.parse()
}
