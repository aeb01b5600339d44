//! `duet bench moe`: its flags.

use crate::bad_input::BadInput;
use crate::offloading::DeviceName;
use clap::{Args, ValueEnum};
use duet_bench::moe::accuracy::{self, Target};
use duet_bench::moe::{Counts, LlamaBench, Part, Settings};
use duet_offload::ExpertScheme;
use duet_types::Tokens;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// `duet bench moe`
#[derive(Debug, Args)]
pub(crate) struct MoeArgs {
    /// Which model; one with experts
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
        default_value = "layer,breakdown,schemes,native,accuracy"
    )]
    pub(crate) only: Vec<MoePart>,
    /// Experts of a group, for one layer's
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4,8,16")]
    pub(crate) group_sizes: Vec<NonZeroUsize>,
    /// Rows that each expert has room for, for one layer's
    #[arg(long, value_name = "ROWS,..", value_delimiter = ',', value_parser = super::count(), default_value = "16,32,64,96,128")]
    pub(crate) capacities: Vec<usize>,
    /// Ways to place experts, which are compared with the CPU alone
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "naive,dense-only,base,tiers,groups,all"
    )]
    pub(crate) schemes: Vec<ExpertScheme>,
    /// Rows that prompts are read in; all schemes with the first number, `all` with the others, too
    #[arg(long, value_name = "ROWS,..", value_delimiter = ',', value_parser = super::count(), default_value = "256,512")]
    pub(crate) chunks: Vec<usize>,
    /// Lengths of the prompts
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', value_parser = super::count(), default_value = "512")]
    pub(crate) lengths: Vec<usize>,
    /// Tokens decoded after each prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 8, value_parser = super::count())]
    pub(crate) max_tokens: usize,
    /// Questions and texts for accuracy, one JSON object a line: `task` and what a task has, `hellaswag`, `boolq` or
    /// `ruler_…`; without them accuracy is left out
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) data: Vec<PathBuf>,
    /// Items of each file at most, and as many to calibrate on
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = super::count())]
    pub(crate) limit: usize,
    /// Lengths of items, from and to: short ones hardly overflow any expert
    #[arg(long, value_name = "TOKENS", num_args = 2, default_values = ["256", "1024"], value_parser = super::count())]
    pub(crate) item_lengths: Vec<usize>,
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = super::count())]
    pub(crate) samples: usize,
    /// A few minutes' worth: one sample, groups of 1 and 8, capacities of 16 and 64, chunks of 256
    #[arg(long, conflicts_with_all = ["samples", "group_sizes", "capacities", "chunks"])]
    pub(crate) quick: bool,
    /// Threads of a device that has such, and of the CPU's kernels, alone and beside it; half of the cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// llama.cpp's `llama-bench`, to be measured on the same file in turns with the CPU alone
    #[arg(long, value_name = "PATH")]
    pub(crate) llama_bench: Option<PathBuf>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MoePart {
    /// One layer's experts in groups of each size and capacity
    Layer,
    /// Where the time of a layer goes, by scheme
    Breakdown,
    /// A prompt read and answered by the whole model, by scheme
    Schemes,
    /// The model on the CPU alone
    Native,
    /// What limited capacities cost in answers
    Accuracy,
}

impl MoeArgs {
    /// What to measure.
    pub(crate) fn settings(&self, counts: Counts, llama_bench: Option<LlamaBench>) -> Settings {
        let settings = Settings {
            parts: self.only.iter().filter_map(|&part| part.of_speed()).collect(),
            samples: self.samples,
            group_sizes: self.group_sizes.clone(),
            capacities: tokens(&self.capacities),
            schemes: self.schemes.clone(),
            chunks: tokens(&self.chunks),
            lengths: tokens(&self.lengths),
            output: self.max_tokens,
            counts,
            llama_bench,
        };
        if self.quick {
            let group_sizes = QUICK_GROUPS.into_iter().filter_map(NonZeroUsize::new).collect();
            let (capacities, chunks) = (tokens(&QUICK_CAPACITIES), tokens(&QUICK_CHUNKS));
            return Settings { samples: 1, group_sizes, capacities, chunks, ..settings };
        }
        settings
    }

    /// What accuracy is measured by; nothing if it is not.
    pub(crate) fn accuracy(&self, target: Target) -> Result<Option<accuracy::Settings>, BadInput> {
        let wanted = self.only.iter().any(|part| matches!(part, MoePart::Accuracy));
        if wanted && self.data.is_empty() {
            let alone = "--only accuracy needs --data FILE: questions or texts, one JSON object a line";
            return if self.only.len() == 1 { Err(BadInput(alone.to_owned())) } else { Ok(None) };
        }
        let [shortest, longest] = [0, 1].map(|at| tokens(&self.item_lengths).get(at).copied().unwrap_or(Tokens(1)));
        if shortest > longest {
            return Err(BadInput(format!("--item-lengths {shortest} {longest}: the first is to be the smaller one")));
        }
        Ok(wanted.then(|| accuracy::Settings {
            modes: accuracy::Mode::all(),
            limit: self.limit,
            lengths: (shortest, longest),
            threads: self.threads.map_or_else(|| crate::offloading::cores().into(), usize::from),
            target: Some(target),
        }))
    }

    /// The other engine, on the model whose file is at `path`.
    pub(crate) fn llama_bench(&self, path: &Path) -> Result<Option<LlamaBench>, BadInput> {
        let Some(program) = self.llama_bench.clone() else { return Ok(None) };
        if !program.is_file() {
            return Err(BadInput(format!("--llama-bench {}: there is no such program", program.display())));
        }
        Ok(Some(LlamaBench { program, model: path.to_owned() }))
    }
}

const QUICK_GROUPS: [usize; 2] = [1, 8];
const QUICK_CAPACITIES: [usize; 2] = [16, 64];
const QUICK_CHUNKS: [usize; 1] = [256];

fn tokens(all: &[usize]) -> Vec<Tokens> {
    all.iter().map(|&tokens| Tokens(u32::try_from(tokens).unwrap_or(u32::MAX))).collect()
}

impl MoePart {
    /// The part that is about speed, if it is.
    fn of_speed(self) -> Option<Part> {
        match self {
            Self::Layer => Some(Part::Layer),
            Self::Breakdown => Some(Part::Breakdown),
            Self::Schemes => Some(Part::Schemes),
            Self::Native => Some(Part::Native),
            Self::Accuracy => None,
        }
    }
}
