//! `duet report NAME`: a paper's results as they are predicted, beside the paper's own.
//!
//! This file and those beside it are `agent-xpu`; `coordgen` and `npumoe` are others, on the same rows, sections and page.
//! The scheduler that serves is run on virtual lanes, which take as long as a profile of the paper's machine says
//! (`duet-sim`). **Rule:** no constant of the profile is chosen from a result that is compared here, every deviation is
//! told, and a reduction is told with the load that it was found at. Each section is a file: it says what it runs, and
//! makes rows, tables and plots of what came out. (Agent.xpu §6)
//!
//! **Invariant:** the same plan gives the same bytes, whatever the number of threads.

mod ablation;
mod baselines;
mod beyond;
mod breakdown;
mod constants;
mod coordgen;
mod crossing;
mod files;
mod flows;
mod jobs;
mod lab;
mod limits;
mod load_curve;
mod mixed;
mod npumoe;
mod occupancy;
mod outcome;
mod overhead;
mod page;
mod plan;
mod policies;
mod primary;
mod proactive_only;
mod readings;
mod row;
mod section;
mod sensitivity;
mod setting;
mod shown;
#[cfg(test)]
mod tests;
mod tuning;
mod varied;

pub use coordgen::CoordGen;
pub use lab::Progress;
pub use npumoe::{NpuMoe, NpuMoeError};
pub use plan::Plan;
pub use row::Row;

use crate::traces::TraceError;
use files::Files;
use lab::Lab;
use section::Section;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A report by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportName {
    /// The results of Agent.xpu.
    AgentXpu,
    /// The results of CoordGen and sd.npu.
    CoordGen,
    /// The results of NPUMoE.
    NpuMoe,
}

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The directory cannot be made, or files in it cannot be.
    #[error("--out {}: {problem}; name a directory that can be written", path.display())]
    Out {
        /// What cannot be made.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {problem}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// The drafts of a model cannot be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The routes of a model cannot be had.
    #[error(transparent)]
    Routes(#[from] NpuMoeError),
}

impl ReportError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Out { .. } => true,
            Self::Write { .. } => false,
            Self::Trace(error) => error.is_bad_input(),
            Self::Routes(error) => error.is_bad_input(),
        }
    }
}

/// Runs the report of Agent.xpu and writes `index.html` and `report.json` into `directory`, which is made if need be. Both
/// files are opened before anything is run.
///
/// # Errors
/// If the directory or the files cannot be made or written.
pub fn agent_xpu(plan: Plan, directory: &Path, progress: Progress<'_>) -> Result<Vec<Row>, ReportError> {
    let files = Files::open(directory)?;
    files.write(TITLE, &LEAD.map(str::to_owned), &sections(plan, progress))
}

/// Traces the drafts of a model, predicts the results of CoordGen of them, and writes the same two files.
///
/// # Errors
/// As [`agent_xpu`]'s, and if the requests or the model are not fit for it.
pub fn coordgen(ask: &CoordGen<'_>, directory: &Path, progress: Progress<'_>) -> Result<Vec<Row>, ReportError> {
    let files = Files::open(directory)?;
    let (lead, sections) = coordgen::sections(ask, progress)?;
    files.write(coordgen::TITLE, &lead, &sections)
}

/// Lets a model read prompts, predicts the results of NPUMoE of where their rows go, and writes the same two files.
///
/// # Errors
/// As [`agent_xpu`]'s, and if the prompts or the model are not fit for it.
pub fn npumoe(ask: &NpuMoe<'_>, directory: &Path, progress: Progress<'_>) -> Result<Vec<Row>, ReportError> {
    let files = Files::open(directory)?;
    let (lead, sections) = npumoe::sections(ask, progress)?;
    files.write(npumoe::TITLE, &lead, &sections)
}

const TITLE: &str = "Agent.xpu, predicted";
const LEAD: [&str; 4] = [
    "What the scheduler that serves with duet does on the machine of the Agent.xpu paper, as far as that is known: an Intel \
     Core Ultra 5 125H with Llama-3.2-3B and Llama-3.1-8B in W8A16. Nothing of this ran on an NPU. Kernels take as long as \
     the constants at the end of this page say, and the units share the memory's bandwidth. Everything is a prediction.",
    "agent-xpu is the paper's policy (its source says in which points it is not the letter), duet the best policy that was \
     found, igpu-batching stands for OpenVINO's serving on the iGPU, cpu-batching for llama.cpp's server, serial for the \
     static partition of one request at a time.",
    "Traffic is the paper's: requests of each class arrive at random and independently, with lengths from its data sets (or \
     what stands for those that are not public), for 15 minutes, and all are served to their end. Policies get the same \
     traces. A load of 3 + 6 is three reactive and six proactive requests a minute. A figure is that of the mean over seeds, \
     with the lowest and the highest seed beside it; a deviation is the distance from what the paper says, 0 within a range.",
    "No constant of the machine was chosen for the results that are compared here. One limit of duet was: how much longer \
     background riders may make a reactive pass, which is swept in the section on limits. The baselines were tuned as well, and \
     so was agent-xpu: its chunk, its B_cap and its age of overdue work. Rows of its literal values stand beside.",
];

fn sections(plan: Plan, progress: Progress<'_>) -> Vec<Section> {
    let soc = duet_sim::soc::built_in().next().expect("profiles come with the simulator");
    let mut lab = Lab::new(soc, plan, progress);
    // First, since everything else is run with what it finds; on the page it comes later.
    let baselines = baselines::section(&mut lab);
    let limits = limits::section(&mut lab);
    vec![
        primary::section(&mut lab),
        load_curve::section(&mut lab),
        mixed::section(&mut lab),
        proactive_only::section(&mut lab),
        breakdown::section(&mut lab),
        overhead::section(&mut lab),
        beyond::section(&mut lab),
        ablation::section(&mut lab),
        occupancy::section(&mut lab),
        flows::section(&mut lab),
        sensitivity::section(&mut lab),
        baselines,
        limits,
        constants::section(&lab.soc),
    ]
}

impl FromStr for ReportName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "agent-xpu" => Ok(Self::AgentXpu),
            "coordgen" => Ok(Self::CoordGen),
            "npumoe" => Ok(Self::NpuMoe),
            _ => Err(format!("no report is called `{name}`; there are agent-xpu, coordgen and npumoe")),
        }
    }
}
