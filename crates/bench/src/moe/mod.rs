//! `duet bench moe`: experts on static-shape devices, by running them. (NPUMoE §5)
//!
//! | part | file |
//! | --- | --- |
//! | one layer's experts in groups of each size and capacity (Table 5) | `layer.rs` |
//! | where the time of a layer goes, by scheme (Table 4) | `breakdown.rs`, with the clocks of `watched.rs` |
//! | a prompt read and answered by the whole model, by scheme (§5.3, §5.8) | `schemes.rs` |
//! | the model on the CPU alone, beside another engine | `native.rs`, `llama_bench.rs` |
//! | what limited capacities cost in answers (§5.6) | `accuracy/` |
//! | where routers sent rows, which capacities follow from (§3.3) | `counts.rs` |
//!
//! Samples of what is compared take turns, so that a machine that changes its speed changes it for all. At most two
//! placements of the model are on the device at once: the naive one and the one that is measured beside it.

pub mod accuracy;
mod breakdown;
mod counts;
mod layer;
mod line;
mod llama_bench;
mod native;
mod schemes;
mod watched;

pub use counts::{Counts, CountsFrom};
pub use line::Line;
pub use llama_bench::{LlamaBench, LlamaBenchError};

use crate::bed::{Bed, BedError};
use crate::cores::CoresError;
use crate::forward::ForwardError;
use crate::load::Progress;
use duet_model::Model;
use duet_model::forward::{NotRun, PassError};
use duet_offload::{ExpertScheme, ExpertSettings, LayersError, OffloadError, PlacedExperts, RoutingError};
use duet_types::Tokens;
use std::num::NonZeroUsize;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which parts, in their order.
    pub parts: Vec<Part>,
    /// Samples of each figure.
    pub samples: usize,
    /// Experts of a group, for one layer's.
    pub group_sizes: Vec<NonZeroUsize>,
    /// Rows that each has room for, for one layer's.
    pub capacities: Vec<Tokens>,
    /// Schemes that are compared with each other and with the CPU alone.
    pub schemes: Vec<ExpertScheme>,
    /// Rows that prompts are read in; all schemes with the first one, [`ExpertScheme::All`] with the others, too.
    pub chunks: Vec<Tokens>,
    /// Lengths of prompts.
    pub lengths: Vec<Tokens>,
    /// Tokens decoded after each prompt.
    pub output: usize,
    /// What capacities and groups follow from.
    pub counts: Counts,
    /// Another engine on the same model.
    pub llama_bench: Option<LlamaBench>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One layer's experts in groups of each size and capacity.
    Layer,
    /// Where the time of a layer goes.
    Breakdown,
    /// A prompt read and answered by the whole model.
    Schemes,
    /// The model on the CPU alone.
    Native,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MoeError {
    /// The model has no experts.
    #[error(
        "{model} is a dense model: it has no experts to measure; make a model with experts of it with `duet moefy`"
    )]
    Dense {
        /// Its name.
        model: String,
    },
    /// A prompt and its answer are longer than the model's context.
    #[error(
        "{part} takes {tokens} tokens, and the model's context is {context}: take another model, or shorter --lengths \
         and --chunks"
    )]
    Context {
        /// What was to be measured.
        part: &'static str,
        /// What is needed.
        tokens: usize,
        /// The model's.
        context: Tokens,
    },
    /// A graph was not made, or did not run.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] duet_runtimes::Error),
    /// A kernel did not run on the device.
    #[error(transparent)]
    NotRun(#[from] NotRun),
    /// The model is not on the device.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The model's experts make no blocks.
    #[error(transparent)]
    Layers(#[from] LayersError),
    /// Routes were not counted.
    #[error(transparent)]
    Routing(#[from] RoutingError),
    /// A pass was refused.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A pass came to nothing.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// Nothing ran on the cores.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// The other engine was not measured.
    #[error(transparent)]
    LlamaBench(#[from] LlamaBenchError),
    /// There are no samples.
    #[error("nothing was sampled")]
    NoResult,
}

impl MoeError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Dense { .. } | Self::Context { .. })
    }
}

impl Part {
    /// What it is called, and the longest sequence that it has.
    fn tokens(self, settings: &Settings) -> (&'static str, usize) {
        let longest = |all: &[Tokens]| all.iter().map(|tokens| tokens.as_usize()).max().unwrap_or(0);
        match self {
            Self::Layer => ("a layer", 0),
            Self::Breakdown => ("a layer's chunk", settings.chunk().as_usize()),
            Self::Schemes => ("the whole model", longest(&settings.lengths) + settings.output),
            Self::Native => ("the model on the CPU", longest(&settings.lengths) + native::GENERATED),
        }
    }
}

impl Settings {
    /// Rows of a chunk where one is compared.
    fn chunk(&self) -> Tokens {
        self.chunks.first().copied().unwrap_or(ExpertSettings::default().chunk)
    }

    /// Makes the model ready on the device by a scheme.
    fn placed(&self, bed: &Bed, scheme: ExpertScheme, chunk: Tokens) -> Result<PlacedExperts, OffloadError> {
        let threads = usize::from(bed.threads);
        let settings = ExpertSettings { scheme, chunk, threads, ..ExpertSettings::default() };
        let target = (std::sync::Arc::clone(&bed.device), bed.cache.clone());
        PlacedExperts::ready_on(&bed.model, target, Some(&self.counts.calibration), settings, &mut |_| {})
    }
}

/// Whether a model has experts to measure.
///
/// # Errors
/// [`MoeError::Dense`].
pub fn check(model: &Model) -> Result<(), MoeError> {
    let dense = || MoeError::Dense { model: model.config().name.clone() };
    model.blueprint().experts.map(|_| ()).ok_or_else(dense)
}

/// Measures the parts one after the other; `tell` gets each line as soon as it is there.
///
/// # Errors
/// [`MoeError`]; what was measured until then was told.
pub fn run(bed: &Bed, settings: &Settings, progress: Progress<'_>, tell: &mut dyn FnMut(Line)) -> Result<(), MoeError> {
    check(&bed.model)?;
    let context = bed.model.config().context;
    for part in &settings.parts {
        let (part, tokens) = part.tokens(settings);
        if tokens > context.as_usize() {
            return Err(MoeError::Context { part, tokens, context });
        }
    }
    for part in &settings.parts {
        match part {
            Part::Layer => layer::measure(bed, settings, progress, tell)?,
            Part::Breakdown => breakdown::measure(bed, settings, progress, tell)?,
            Part::Schemes => schemes::measure(bed, settings, progress, tell)?,
            Part::Native => native::measure(bed, settings, progress, tell)?,
        }
    }
    Ok(())
}

/// The layer that is measured where it is one: neither the first nor the last, which are often unlike the others.
fn middle(model: &Model) -> usize {
    model.config().layers / 2
}
