//! What limited capacities cost in accuracy: perplexity of texts, and how often the right one of some options is the
//! likeliest. (NPUMoE §5.6)
//!
//! The exact model reads the same items beside each setting, so that settings are compared item by item: by the answers
//! that stay the same, right or wrong, by the difference in right ones, and by the ratio of perplexities, each with its
//! interval. A small model may be no better than chance at a data set; then a difference of accuracies says nothing, the
//! lines say so, and agreement and perplexity are what is left. Capacities are calibrated on one half of the items and
//! measured on the other.
//!
//! | what | file |
//! | --- | --- |
//! | items of workload files | `items/` |
//! | their halves, as tokens | `data_set.rs` |
//! | likelihoods of texts and of options | `likelihood.rs` |
//! | the ways to compute experts | `modes.rs` |
//! | intervals | `statistics.rs` |
//! | what is reported | `line.rs` |

mod data_set;
mod items;
mod likelihood;
mod line;
mod modes;
mod statistics;

pub use line::{Accuracy, Agreement, Capacity, Line, PerplexityRatio};
pub use modes::Mode;

use crate::load::Progress;
use data_set::DataSet;
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{NotRun, PassError};
use duet_model::kv::KvError;
use duet_moe::Calibration;
use duet_offload::{OffloadError, RoutingError, calibrate_experts};
use duet_runtimes::{BlobCache, GraphDevice};
use duet_types::Tokens;
use likelihood::Reader;
use line::{Outcome, Source};
use modes::Subject;
use std::path::PathBuf;
use std::sync::Arc;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ways to compute experts that are compared with the exact model.
    pub modes: Vec<Mode>,
    /// Items of each file to measure on at most, and as many to calibrate on.
    pub limit: usize,
    /// Tokens of a context at least and at most. Those below a chunk hardly overflow any expert.
    pub lengths: (Tokens, Tokens),
    /// Threads of the CPU's kernels.
    pub threads: usize,
    /// What [`Mode::Padded`] computes on; without, it is left out.
    pub target: Option<Target>,
}

/// A device, and where its graphs are kept.
#[derive(Clone, Debug)]
pub struct Target {
    /// The device.
    pub device: Arc<dyn GraphDevice>,
    /// Its compiled graphs.
    pub cache: BlobCache,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum AccuracyError {
    /// A file cannot be read.
    #[error("{}: {problem}", file.display())]
    File {
        /// The file that was named.
        file: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// A line of a file is not what its task says.
    #[error("{}, line {line}: {problem}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// There are fewer than two items of such lengths.
    #[error("{}: fewer than two items of {shortest} to {longest} tokens fit the model's context; ask for other lengths", file.display())]
    NothingFits {
        /// The file.
        file: PathBuf,
        /// Tokens at least.
        shortest: Tokens,
        /// Tokens at most.
        longest: Tokens,
    },
    /// There is no file.
    #[error("there is no data to measure on")]
    NoData,
    /// Experts cannot be calibrated.
    #[error(transparent)]
    Routing(#[from] RoutingError),
    /// Experts cannot be placed.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The model cannot read an item.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// There is no room for an item's keys and values.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] NotRun),
}

impl AccuracyError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::File { .. }
                | Self::Line { .. }
                | Self::NothingFits { .. }
                | Self::NoData
                | Self::Routing(RoutingError::Dense)
                | Self::Offload(OffloadError::Dense | OffloadError::DenseLayers)
        )
    }
}

/// Measures the exact model and each mode on some files, and on all together. `tell` is told each line when its data set
/// is through.
///
/// # Errors
/// [`AccuracyError`].
pub fn measure(
    model: &Arc<Model>,
    data: &[PathBuf],
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), AccuracyError> {
    let sets = data.iter().map(|file| DataSet::read(model, file, settings)).collect::<Result<Vec<_>, _>>()?;
    let counts = calibrate(model, &sets, settings, progress)?;
    let subjects = subjects(model, &counts, settings, progress)?;
    let calibrated_on = calibrated_on(&sets);
    let mut all: Vec<Outcome> = subjects.iter().map(|_| Outcome::default()).collect();
    for set in &sets {
        let outcomes = read(model, set, &subjects, settings, progress)?;
        all.iter_mut().zip(&outcomes).for_each(|(all, outcome)| all.extend(outcome));
        let source = Source { data: set.name.clone(), calibrated_on: calibrated_on.clone(), chance: set.chance() };
        report(&source, &subjects, &outcomes, tell);
    }
    if sets.len() > 1 {
        report(&Source { data: "all".to_owned(), calibrated_on, chance: chance(&sets) }, &subjects, &all, tell);
    }
    Ok(())
}

/// Where the calibration half of all files sends its rows.
fn calibrate(
    model: &Model,
    sets: &[DataSet],
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<Calibration, AccuracyError> {
    let texts: Vec<_> = sets.iter().flat_map(|set| set.calibration.iter().cloned()).collect();
    if texts.is_empty() {
        return Err(AccuracyError::NoData);
    }
    let told = &mut |read| progress(&format!("calibrated on {read} tokens"));
    Ok(calibrate_experts(model, &texts, settings.threads, told)?)
}

/// The exact model first, then each mode that there is a device for.
fn subjects(
    model: &Arc<Model>,
    counts: &Calibration,
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<Vec<Subject>, AccuracyError> {
    let mut subjects = vec![Subject::exact()];
    for mode in &settings.modes {
        progress(&format!("{mode}: preparing"));
        subjects.extend(Subject::of(model, *mode, counts, (settings.target.as_ref(), settings.threads))?);
    }
    Ok(subjects)
}

/// Lets all subjects read a data set.
fn read(
    model: &Model,
    set: &DataSet,
    subjects: &[Subject],
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<Vec<Outcome>, AccuracyError> {
    let crew = Scoped { threads: settings.threads };
    let before: Vec<_> = subjects.iter().map(Subject::dispatched).collect();
    let mut outcomes: Vec<Outcome> = subjects.iter().map(|_| Outcome::default()).collect();
    for (index, item) in set.measured.iter().enumerate() {
        progress(&format!("{}: item {} of {}", set.name, index + 1, set.measured.len()));
        for (subject, outcome) in subjects.iter().zip(&mut outcomes) {
            let reader = Reader { model, device: subject.device(), experts: subject.experts(), crew: &crew };
            outcome.said.push(reader.say(item)?);
        }
    }
    for ((subject, outcome), before) in subjects.iter().zip(&mut outcomes).zip(before) {
        outcome.dispatched = subject.dispatched() - before;
    }
    Ok(outcomes)
}

fn report(source: &Source, subjects: &[Subject], outcomes: &[Outcome], tell: &mut dyn FnMut(Line)) {
    let Some((exact, others)) = outcomes.split_first() else { return };
    tell(Line::exact(source, exact));
    for (subject, outcome) in subjects.iter().skip(1).zip(others) {
        tell(Line::compared(&subject.setting, source, exact, outcome));
    }
}

/// Of all questions together.
fn chance(sets: &[DataSet]) -> Option<f64> {
    let asked = |set: &DataSet| set.measured.iter().filter(|item| item.question.is_some()).count() as f64;
    let n: f64 = sets.iter().map(asked).sum();
    let right: f64 = sets.iter().filter_map(|set| Some(set.chance()? * asked(set))).sum();
    (n > 0.0).then_some(right / n)
}

fn calibrated_on(sets: &[DataSet]) -> String {
    let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
    format!("other items of {}", names.join(", "))
}
