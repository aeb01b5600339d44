//! `duet report npumoe`: the results of NPUMoE as they are predicted, beside the paper's own.
//!
//! **Rule:** prompts and rows are real, routers may be fitted, time is predicted. A real model reads real prompts, and
//! routers say where its rows go ([`routing`]): those in its file, or some that are fitted to its rows. (The routers of a
//! model that `duet moefy` made are fitted, too.) `duet-moe` makes its plans of one half of the prompts and dispatches the
//! other; what that takes is then timed on the profiles of the paper's machines, for the paper's models by their shapes, on
//! a timeline of two lanes. The schemes differ in who computes what and in the plan, and in nothing else. No constant is
//! chosen from a result that is compared here; what the paper leaves open is swept. (NPUMoE §5)
//!
//! | what | file |
//! | --- | --- |
//! | prompts to calibrate on and to run on | `prompts.rs` |
//! | where their rows go | `routing.rs` |
//! | the machines and the models | `machines.rs`, `targets.rs` |
//! | what no profile says | `assumptions.rs` |
//! | the paper's system, its baselines, its ablation | `schemes.rs` |
//! | plans, and what they come to for real rows | `plans.rs`, `chunks.rs` |
//! | what pieces take | `costs.rs` |
//! | two lanes, and a layer on them | `timeline.rs`, `layer.rs` |
//! | a prompt and an answer: time, energy, cycles | `prefill.rs`, `usage.rs` |
//! | the sweep | `sweep.rs` |
//! | a section each | `calibration.rs`, `latency.rs`, `energy.rs`, `cycles.rs`, `end_to_end.rs`, `block.rs`, `ablation.rs`, `padding.rs`, `gpu.rs`, `sensitivity.rs`, `constants.rs` |
//!
//! **Invariant:** the same model, prompts and amounts give the same bytes.

mod ablation;
mod assumptions;
mod block;
mod calibration;
mod chunks;
mod claims;
mod constants;
mod costs;
mod cycles;
mod end_to_end;
mod energy;
mod gpu;
mod latency;
mod layer;
mod machines;
mod padding;
mod plans;
mod prefill;
mod prompts;
mod routing;
mod schemes;
mod sensitivity;
mod sweep;
mod targets;
#[cfg(test)]
mod tests;
mod timeline;
mod usage;

use super::lab::Progress;
use super::section::Section;
use crate::load::LoadError;
use duet_model::Model;
use duet_moefy::MoefyError;
use duet_types::Tokens;
use prompts::{Amounts, DataSet, data_sets};
use routing::{Read, Routers, Source};
use std::path::PathBuf;
use sweep::{Grid, Sweep};

/// What the report is made of.
#[derive(Clone, Copy, Debug)]
pub struct NpuMoe<'a> {
    /// Whose routing.
    pub model: &'a Model,
    /// What it is called; a model that was made of another is told with that one.
    pub name: &'a str,
    /// A data set each; without any, the samples that come with the program.
    pub workloads: &'a [PathBuf],
    /// Prompts of 4096 tokens to run on, at most.
    pub limit: usize,
    /// Threads that read. They change how long it takes, and nothing else.
    pub threads: usize,
}

/// Why routes could not be had.
#[derive(Debug, thiserror::Error)]
pub enum NpuMoeError {
    /// Prompts cannot be read.
    #[error(transparent)]
    Workload(#[from] LoadError),
    /// The model cannot read them, or there are too few for a router.
    #[error(transparent)]
    Read(#[from] MoefyError),
    /// Too few prompts for one of those that the paper has.
    #[error(
        "--workload: every second prompt is run on, and these have {tokens} tokens; a prompt of the paper has \
         {wanted}: give more prompts"
    )]
    TooFew {
        /// That there are.
        tokens: usize,
        /// Of the longest prompt.
        wanted: u32,
    },
}

impl NpuMoeError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Workload(error) => error.is_bad_input(),
            Self::Read(error) => matches!(error, MoefyError::NoText | MoefyError::Router { .. }),
            Self::TooFew { .. } => true,
        }
    }
}

/// What sections speak of.
struct Study {
    /// Whose routing.
    model: String,
    sets: Vec<(String, [usize; 2])>,
    read: Read,
    sweep: Sweep,
}

pub(super) const TITLE: &str = "NPUMoE, predicted";

/// Prompt lengths and chunks of the paper. (§5.1)
const PROMPTS: [u32; 2] = [1024, 4096];
const CHUNKS: [u32; 3] = [256, 512, 1024];
/// Tokens to calibrate on: popularity of 128 experts is a matter of some thousand.
const CALIBRATE: Tokens = Tokens(8192);

/// The paragraphs before the sections, and the sections.
pub(super) fn sections(ask: &NpuMoe<'_>, progress: Progress<'_>) -> Result<(Vec<String>, Vec<Section>), NpuMoeError> {
    let longest = PROMPTS[1];
    let run = Tokens(longest.saturating_mul(u32::try_from(ask.limit).unwrap_or(u32::MAX)));
    let sets = data_sets(ask.model, ask.workloads, Amounts { calibrate: CALIBRATE, run })?;
    let tokens: usize = sets.iter().flat_map(|set| &set.run).map(Vec::len).sum();
    if tokens < longest as usize {
        return Err(NpuMoeError::TooFew { tokens, wanted: longest });
    }
    progress(&format!("{} reads {}", ask.name, described(&sets)));
    let read = Read::of(ask.model, &sets, ask.threads)?;
    let grid = Grid::new(&PROMPTS, &CHUNKS, read.rows.min(run.as_usize()));
    let sweep = Sweep::run(&read, &grid, &|what| progress(what));
    let lengths = |set: &DataSet| [&set.calibrate, &set.run].map(|texts| texts.iter().map(Vec::len).sum());
    let sets = sets.iter().map(|set| (set.name.clone(), lengths(set))).collect();
    let study = Study { model: ask.name.to_owned(), sets, read, sweep };
    let sections = vec![
        latency::section(&study),
        energy::section(&study),
        cycles::section(&study),
        end_to_end::section(&study),
        ablation::section(&study),
        block::section(&study),
        padding::section(&study),
        calibration::section(&study),
        gpu::section(&study),
        sensitivity::section(&study),
        constants::section(),
    ];
    Ok((lead(&study, &grid), sections))
}

fn described(sets: &[DataSet]) -> String {
    let texts = |texts: &[Vec<_>]| (texts.len(), texts.iter().map(Vec::len).sum::<usize>());
    let each = sets.iter().map(|set| {
        let ((calibrate, tokens), (run, more)) = (texts(&set.calibrate), texts(&set.run));
        format!("{} ({calibrate} prompts of {tokens} tokens to calibrate, {run} of {more} to run)", set.name)
    });
    each.collect::<Vec<_>>().join("; ")
}

impl Study {
    /// What a row is of.
    fn setting(&self, what: &str) -> String {
        format!("{what}, routing of {}", self.model)
    }

    /// Prompts of a length.
    fn prompts(&self, length: u32) -> usize {
        self.sweep.rows() / length as usize
    }
}

fn lead(study: &Study, grid: &Grid) -> Vec<String> {
    let sets: Vec<String> = study
        .sets
        .iter()
        .map(|(name, [calibrate, run])| format!("{name} ({calibrate} tokens to calibrate on, {run} to run on)"))
        .collect();
    let whose = |routers: Routers| match study.read.by(routers).source {
        Source::Own => format!("{}: the best of the choices of the routers in its file", routers.name()),
        Source::Found => format!("{}: routers that were fitted to its rows", routers.name()),
    };
    vec![
        format!(
            "What NPUMoE would do on the paper's two machines, as far as they are known. Nothing of this ran on an Apple \
             machine. Prompts and rows are real: {} read {}. Of every data set each second prompt was calibrated on \
             and the others were run on; prompts of 1024 and 4096 tokens are those rows one behind the other, {} and {} of \
             them. ({}; {}.) Routers that `duet moefy` made, or that were fitted here, are not those of a model that was trained \
             with experts, such as the paper's: their balance may be another.",
            study.model,
            sets.join("; "),
            grid.rows / 1024,
            grid.rows / 4096,
            whose(Routers::Few),
            whose(Routers::Many),
        ),
        "Plans (tiers, groups, residency) and the dispatch of every chunk are those of the code that is to serve. Time is that \
         of two lanes, the NPU and the CPU beside it, for the paper's models by their published shapes; a static graph takes \
         what all of its slots take. Everything is a prediction, and none of its constants is chosen from a result that is \
         compared here."
            .to_owned(),
        "Core ML (CPU), CoreML (naïve) and ANEMLL, the paper's baselines, are called CPU, naïve and dense-only; base, T, TG and \
         all are the steps of its ablation; all is its system. duet is the same with nothing dropped: what has no room is \
         computed on the CPU meanwhile, answers are decoded there, and so is any group whose weights the NPU reads for longer \
         than its rows save. Phi-3.5-MoE is not on the M2 Max, whose 64 GB do not \
         hold its 84."
            .to_owned(),
        "A figure is that of the profiles as they are; from and to are its lowest and highest while one constant at a time, or \
         one reading of what the paper leaves open, takes the ends of its interval. A deviation is the distance from what the \
         paper says, 0 within a range."
            .to_owned(),
    ]
}
