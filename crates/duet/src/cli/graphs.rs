//! `duet bench graphs`: its flags.

use crate::offloading::DeviceName;
use clap::{Args, ValueEnum};
use duet_bench::graphs::{Method, Part, Settings};
use duet_types::Tokens;
use std::num::NonZeroUsize;

/// `duet bench graphs`
#[derive(Debug, Args)]
pub(crate) struct GraphsArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Which device, by its name in `duet devices`
    #[arg(long, value_name = "NAME", default_value = "openvino:CPU")]
    pub(crate) device: DeviceName,
    /// What to measure
    #[arg(
        long,
        value_enum,
        value_name = "PART,..",
        value_delimiter = ',',
        default_value = "blocks,progressive,exact,end-to-end,experts,optimality"
    )]
    pub(crate) only: Vec<PartName>,
    /// Lengths of the prompts that are read while graphs are exchanged
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', value_parser = super::count(), default_value = "256,1024,2048")]
    pub(crate) lengths: Vec<usize>,
    /// Ways to have graphs for both stages; the first one's answers are what the others' are compared with
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "both,shared-32,shared-64,shared-128,shared-256,synchronous,asynchronous,progressive,latest-start,\
                         latest-start-beside"
    )]
    pub(crate) methods: Vec<Method>,
    /// Tokens decoded after each prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 32, value_parser = super::count())]
    pub(crate) max_tokens: usize,
    /// Blocks that the model is cut into where graphs are exchanged; no more than it has layers
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) blocks: NonZeroUsize,
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = super::count())]
    pub(crate) samples: usize,
    /// A minute's worth: one sample, prompts of 256 and 512, 8 tokens decoded
    #[arg(long, conflicts_with_all = ["lengths", "samples", "max_tokens"])]
    pub(crate) quick: bool,
    /// Threads of a device that has such, and of the CPU's kernels beside it; half of the cores by default, so that graphs
    /// can be loaded beside it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PartName {
    /// Each kind of block in each shape, and launches
    Blocks,
    /// Graphs exchanged while a prompt is read
    Progressive,
    /// Graphs for exactly a prompt's rows, against padded chunks
    Exact,
    /// The whole model through the graphs, beside the CPU's kernels
    EndToEnd,
    /// One graph for each expert, or for a group
    Experts,
    /// Plans of exchanges against the best plan
    Optimality,
}

impl GraphsArgs {
    /// What to measure.
    pub(crate) fn settings(&self) -> Settings {
        let parts = self.only.iter().map(|&part| part.into()).collect();
        let settings = Settings {
            parts,
            samples: self.samples,
            lengths: lengths(&self.lengths),
            output: self.max_tokens,
            methods: self.methods.clone(),
            blocks: self.blocks,
        };
        if self.quick {
            return Settings { samples: 1, lengths: lengths(&QUICK_LENGTHS), output: QUICK_OUTPUT, ..settings };
        }
        settings
    }
}

const QUICK_LENGTHS: [usize; 2] = [256, 512];
const QUICK_OUTPUT: usize = 8;

fn lengths(all: &[usize]) -> Vec<Tokens> {
    all.iter().map(|&tokens| Tokens(u32::try_from(tokens).unwrap_or(u32::MAX))).collect()
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Blocks => Self::Blocks,
            PartName::Progressive => Self::Progressive,
            PartName::Exact => Self::Exact,
            PartName::EndToEnd => Self::EndToEnd,
            PartName::Experts => Self::Experts,
            PartName::Optimality => Self::Optimality,
        }
    }
}
