//! `duet bench graphs`: what a device that takes compiled graphs costs and gives, by running it.
//!
//! | part | file |
//! | --- | --- |
//! | compiling, exporting, taking up and running each kind of block in each shape | `blocks.rs` |
//! | what a launch costs | `launch.rs` |
//! | one graph for each expert, or one for a group (NPUMoE §4.2) | `experts.rs` |
//! | graphs exchanged while a prompt is read (CoordGen §3.2) | `progressive/` |
//! | graphs for exactly a prompt's rows, against padded chunks (Agent.xpu §4.3) | `exact.rs` |
//! | plans against the best plan, on random problems (CoordGen appendix A) | `optimality.rs` |
//! | a model through the graphs, beside the CPU's kernels | `end_to_end.rs` |
//!
//! Samples of what is compared take turns, so that a machine that changes its speed changes it for all.

mod blocks;
mod end_to_end;
mod exact;
mod experts;
mod launch;
mod line;
mod optimality;
mod progressive;
mod random_weights;

pub use crate::bed::Bed;
pub use line::Line;
pub use progressive::Method;

use crate::bed::BedError;
use crate::cores::CoresError;
use crate::forward::ForwardError;
use crate::load::Progress;
use duet_graphs::{BlockError, WeightsError};
use duet_offload::switching::{GraphProfileError, SwitchingError};
use duet_offload::{LayersError, OffloadError};
use duet_scheduler::progressive::ProblemError;
use duet_types::Tokens;
use std::num::NonZeroUsize;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which parts, in their order.
    pub parts: Vec<Part>,
    /// Samples of each figure.
    pub samples: usize,
    /// Lengths of prompts.
    pub lengths: Vec<Tokens>,
    /// Tokens decoded after each prompt.
    pub output: usize,
    /// Ways to have graphs for both stages, one at least; the first one's answers are what the others' are compared with.
    pub methods: Vec<Method>,
    /// Blocks that the model is cut into where graphs are exchanged.
    pub blocks: NonZeroUsize,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Each kind of block in each shape, and launches.
    Blocks,
    /// Experts one by one and in groups.
    Experts,
    /// Graphs exchanged while a prompt is read.
    Progressive,
    /// Graphs for exactly a prompt's rows.
    Exact,
    /// Plans against the best one.
    Optimality,
    /// A model through the graphs, beside the CPU's kernels.
    EndToEnd,
}

impl Part {
    /// What it is called, and the longest sequence that it has.
    fn tokens(self, settings: &Settings) -> (&'static str, usize) {
        let longest = settings.lengths.iter().map(|length| length.as_usize()).max().unwrap_or(0);
        match self {
            Self::Blocks | Self::Experts | Self::Optimality => ("a block", 0),
            Self::Progressive => ("exchanging graphs", progressive::TOKENS_MIN.max(longest + settings.output)),
            Self::Exact => ("a prompt on graphs of its own", exact::PROMPT.as_usize()),
            Self::EndToEnd => ("the whole model", end_to_end::PROMPT + settings.output),
        }
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum GraphsError {
    /// The device refused.
    #[error(transparent)]
    Device(#[from] duet_runtimes::Error),
    /// The model is not on the device.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A prompt was not read.
    #[error(transparent)]
    Switching(#[from] SwitchingError),
    /// A pass came to nothing.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The model has no blocks.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// Random weights make no block.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// Random numbers make no weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A graph was not made, or did not run.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// What was measured is no profile.
    #[error(transparent)]
    Profile(#[from] GraphProfileError),
    /// A prompt that cannot be planned for.
    #[error("{0}")]
    Problem(ProblemError),
    /// A prompt and its answer are longer than the model's context.
    #[error(
        "{part} takes {tokens} tokens, and the model's context is {context}: take another model, or shorter --lengths"
    )]
    Context {
        /// What was to be measured.
        part: &'static str,
        /// What is needed.
        tokens: usize,
        /// The model's.
        context: Tokens,
    },
    /// Nothing ran on the cores.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// The device makes no graphs for exactly a prompt's rows.
    #[error("the device makes no graph for exactly a prompt's rows: {0}")]
    NotPrepared(String),
    /// The device gave no result.
    #[error("the device gave no result")]
    NoResult,
}

impl GraphsError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Context { .. })
    }
}

/// Measures the parts one after the other; `tell` gets each line as soon as it is there.
///
/// # Errors
/// [`GraphsError`]; what was measured until then was told.
pub fn run(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    let context = bed.model.config().context;
    for part in &settings.parts {
        let (part, tokens) = part.tokens(settings);
        if tokens > context.as_usize() {
            return Err(GraphsError::Context { part, tokens, context });
        }
    }
    for part in &settings.parts {
        match part {
            Part::Blocks => {
                blocks::measure(bed, settings, progress, tell)?;
                launch::measure(bed, settings, progress, tell)?;
            }
            Part::Experts => experts::measure(bed, settings, progress, tell)?,
            Part::Progressive => progressive::measure(bed, settings, progress, tell)?,
            Part::Exact => exact::measure(bed, settings, progress, tell)?,
            Part::Optimality => optimality::measure(tell),
            Part::EndToEnd => end_to_end::measure(bed, settings, progress, tell)?,
        }
    }
    Ok(())
}
