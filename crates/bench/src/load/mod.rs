//! Mixed load: requests that a person waits for beside requests that nobody waits for.
//!
//! Two independent Poisson streams draw real prompts; each request is timed as its client sees it. Compared settings
//! take turns in slices, because a machine's speed drifts; every figure comes with its sample count, and one that was
//! not measured is absent. The subject is an engine in this process under any policy, or any OpenAI-compatible server.

mod arrivals;
mod cases;
mod conservation;
mod curve;
mod decision;
mod http;
mod interference;
mod job;
mod lanes;
mod lengths;
mod mixed;
mod page;
mod plan;
mod preemption;
mod prose;
mod record;
mod report;
mod run;
mod sampled;
mod section;
mod stage;
mod starvation;
mod subject;
mod summary;
mod target;
mod texts;
mod workload;

pub use arrivals::Rates;
pub use conservation::Conservation;
pub use curve::{AloneMean, CurvePoint, CurveSettings, POINTS, curve};
pub use decision::{DecisionCost, decision_cost};
pub use http::{Classes, Server};
pub use interference::Interference;
pub use lanes::{LaneFigures, PredictedEnergy};
pub use lengths::lengths;
pub use mixed::{Background, MixedSettings};
pub use plan::{Plan, plan};
pub use report::{Extent, Part, ReportSettings, report};
pub use run::{Alone, LoadReport, run};
pub use sampled::{Decisions, PreemptMs};
pub use section::{Bound, Section, Target};
pub use subject::Subject;
pub use summary::{N_FOR_P99, Summary};

pub(crate) use subject::encode;
pub use texts::{spread, texts};
pub use workload::Workload;

use duet_engine::EngineError;
use duet_model::template::TemplateError;
use std::path::PathBuf;

/// Told what is being measured now.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A workload file cannot be read.
    #[error("--workload {}: {problem}", file.display())]
    WorkloadFile {
        /// The file that was named.
        file: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// A line of a workload file is wrong.
    #[error("{}, line {line}, {field}: {problem}", file.display())]
    Workload {
        /// The file.
        file: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A class is to be played and has no prompts.
    #[error("--workload holds no {kind} prompts under 10000 characters")]
    NoPrompts {
        /// The class.
        kind: &'static str,
    },
    /// The model cannot be asked so.
    #[error("the model's chat template refused the messages: {0}")]
    Template(#[from] TemplateError),
    /// The engine could not be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file has no prompt that the model can read and answer with more than a token.
    #[error("--workload {}: no prompt fits the model's context and has an answer of more than one token", file.display())]
    NothingAnswered {
        /// The file whose prompts all failed.
        file: PathBuf,
    },
    /// There is no place for a history of answers.
    #[error("a history of answers could not be begun: {0}")]
    History(String),
    /// Nothing of a slice ended well.
    #[error("{subject} answered no request: {problem}")]
    AllFailed {
        /// Who.
        subject: String,
        /// What the first one said.
        problem: String,
    },
    /// The report cannot be written.
    #[error("--report {}: {problem}", path.display())]
    Write {
        /// The folder or file that was to be written.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
}

impl LoadError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::WorkloadFile { .. }
                | Self::Workload { .. }
                | Self::NoPrompts { .. }
                | Self::NothingAnswered { .. }
                | Self::Template(_)
        )
    }
}
