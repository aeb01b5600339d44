//! What exchanging graphs costs on a device, and the blocks and shapes that follow from it: measured once, kept in a file.
//! (CoordGen §3.1; sd.npu §4.1)
//!
//! | what | file |
//! | --- | --- |
//! | what a layer's graphs cost in each shape, and so those of a block | `costs.rs` |
//! | measuring that with a few layers | `measure.rs`, `compiling.rs` |
//! | which requests blocks are chosen for, within which memory | `demand.rs` |
//! | every way to cut the model, with each pair of shapes | `candidates.rs` |
//! | what was measured, and where it is kept | `subject.rs` |
//!
//! Invariant: a profile that is given out was measured on this device, with this model, by this version, and its choice
//! makes blocks.

mod candidates;
mod compiling;
mod costs;
mod demand;
mod measure;
mod subject;
#[cfg(test)]
mod tests;

pub use costs::{GraphCosts, LoadTime, ShapeCost};
pub use demand::{Demand, GraphBudget};
pub use measure::{Measuring, SHAPES};
pub use subject::GraphSubject;

use super::error::SwitchingError;
use super::layer_shelf::{LayerShelf, Placement};
use duet_files::sealed;
use duet_model::Model;
use duet_scheduler::progressive::{Blocks, BlocksError, Candidate, Choice, Pair, ProblemError, choose};
use duet_types::{Bytes, Tokens};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a model's graphs cost on a device, and how they are best exchanged there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphProfile {
    of: GraphSubject,
    costs: GraphCosts,
    demand: Demand,
    chosen: Candidate,
}

/// A profile, and what its choice was made from.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The profile.
    pub profile: GraphProfile,
    /// All candidates that fit, and the best of them, which is the profile's.
    pub choice: Choice,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum GraphProfileError {
    /// The device did not run what was measured.
    #[error(transparent)]
    Switching(#[from] SwitchingError),
    /// What was measured makes no blocks.
    #[error("{0}")]
    Blocks(BlocksError),
    /// Graphs of these rows were not measured.
    #[error("graphs of {} and {} rows were not measured", .0.prefill, .0.decode)]
    NotMeasured(Pair<Tokens>),
    /// A request that cannot be.
    #[error("{0}")]
    Problem(ProblemError),
    /// One shape, or shapes that are longer than the model's context: nothing can be exchanged.
    #[error("graphs of two numbers of rows at least are exchanged, each within the model's context of {0} tokens")]
    Shapes(Tokens),
    /// There is no room for one graph of each block.
    #[error("graphs may take {budget}, and a set of them takes {needed} at least: allow for more")]
    Budget {
        /// The smallest set.
        needed: Bytes,
        /// What there is.
        budget: Bytes,
    },
}

impl GraphProfile {
    /// Measures the device's graphs with a few layers, and chooses blocks and shapes for the demand. Takes some seconds on
    /// a device that computes in real time.
    ///
    /// # Errors
    /// If the device does not run the graphs, or no choice fits.
    pub fn measure(
        model: &Arc<Model>,
        placement: &Placement,
        measuring: &Measuring,
        demand: Demand,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Swept, GraphProfileError> {
        let rows = measuring.rows_within(model.config().context);
        if rows.len() < 2 {
            return Err(GraphProfileError::Shapes(model.config().context));
        }
        progress("compiling a few layers");
        let shelf = LayerShelf::fill(model, placement.clone(), Measuring::LAYERS, &rows, &mut |_| {})?;
        progress("loading and running their graphs");
        let costs = GraphCosts::measure(model, &shelf, measuring)?;
        progress("choosing blocks and shapes");
        Self::chosen(GraphSubject::of(model, &*placement.device), costs, demand)
    }

    /// The profile of this model and device that is kept in `folder`, if it was made for this demand; else it is measured,
    /// and kept there. That it cannot be kept makes only the next start slower.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn load_or_measure(
        folder: Option<&Path>,
        model: &Arc<Model>,
        placement: &Placement,
        demand: Demand,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, GraphProfileError> {
        let subject = GraphSubject::of(model, &*placement.device);
        let kept = folder.and_then(|folder| Self::load(folder, &subject));
        let profile = match kept {
            Some(kept) if kept.demand == demand => return Ok(kept),
            Some(kept) => Self::chosen(subject, kept.costs, demand)?.profile,
            None => Self::measure(model, placement, &Measuring::default(), demand, progress)?.profile,
        };
        if let Some(Err(error)) = folder.map(|folder| profile.save(folder)) {
            progress(&format!("the profile of the graphs could not be kept: {error}"));
        }
        Ok(profile)
    }

    /// The profile of `subject` in `folder`; none if there is none, or one that is damaged or of something else.
    #[must_use]
    pub fn load(folder: &Path, subject: &GraphSubject) -> Option<Self> {
        let profile: Self = sealed::read(&folder.join(subject.file_name()), KIND)?;
        let is_good = profile.of == *subject && profile.costs.blocks(profile.chosen).is_ok();
        is_good.then_some(profile)
    }

    /// Writes it to `folder`, whole or not at all. Returns where.
    ///
    /// # Errors
    /// As the file system says.
    pub fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join(self.of.file_name());
        sealed::write(&path, KIND, self)?;
        Ok(path)
    }

    /// The blocks that were chosen, as plans are made of them.
    ///
    /// # Panics
    /// Never: its choice makes blocks.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        self.costs.blocks(self.chosen).expect("a profile's choice makes blocks")
    }

    /// How many blocks, and which rows: what a [`super::Shelf`] is filled with.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        self.chosen
    }

    /// What was measured.
    #[must_use]
    pub fn costs(&self) -> &GraphCosts {
        &self.costs
    }

    /// What the choice was made for.
    #[must_use]
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Chooses among all candidates.
    fn chosen(of: GraphSubject, costs: GraphCosts, demand: Demand) -> Result<Swept, GraphProfileError> {
        let (budget, needed) = (demand.budget.bytes(&costs), costs.least_set());
        // A wrong budget is told before times are looked at, which are wrong where the machine was busy.
        if budget < needed {
            return Err(GraphProfileError::Budget { needed, budget });
        }
        let trials = candidates::trials(&costs, &demand)?;
        let choice = choose(&trials, budget).map_err(GraphProfileError::Problem)?;
        let choice = choice.ok_or(GraphProfileError::Budget { needed, budget })?;
        let profile = Self { of, costs, demand, chosen: choice.best.candidate };
        Ok(Swept { profile, choice })
    }
}

/// The version of the format is the number.
const KIND: &str = "duet graph profile 1";
