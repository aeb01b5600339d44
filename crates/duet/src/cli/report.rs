//! `duet report`: its flags.

use clap::Args;
use duet_bench::report::ReportName;
use std::path::PathBuf;

/// `duet report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Which paper: agent-xpu, coordgen or npumoe
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: ReportName,
    /// Write index.html and report.json into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// agent-xpu: traces of each setting, 15 minutes each [default: 5, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) seeds: Option<u8>,
    /// agent-xpu: fewer traces and coarser sweeps, for a first look
    #[arg(long)]
    pub(crate) quick: bool,
    /// coordgen: the model whose acceptance is taken; npumoe: the model whose rows go to experts; a dense one is made
    /// into experts first, with fitted routers [default: smollm2]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// coordgen, npumoe: files of requests, a task each [default: the samples that come with duet]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) workload: Vec<PathBuf>,
    /// coordgen: requests of each task at most [default: 20]; npumoe: prompts of 4096 tokens at most [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) limit: Option<u16>,
    /// Print report.json on stdout, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

fn name(text: &str) -> Result<ReportName, String> {
    text.parse()
}
