//! What the world is told by those who make graphs, load them, and read weights for passes that wait without a lane; and
//! what it tells of such things, to be shown.

use super::EngineWorld;
use crate::backend::Backend;
use crate::exact::ExactCounts;
use crate::past::When;
use crate::runtime::Shared;
use duet_device::Absences;
use duet_model::forward::{NotPrepared, Prepared};
use duet_scheduler::{Event, Graph, PassId};
use duet_types::Instant;
use std::sync::Weak;

impl<B: Backend> EngineWorld<B> {
    /// Graphs for a prompt's rows are there, or not.
    pub(crate) fn prepared(&mut self, now: Instant, graph: Graph, made: Result<Prepared, NotPrepared>) {
        if self.past.of(graph.request) == When::Past {
            return self.exact.unwanted(made);
        }
        if let Some(event) = self.exact.prepared(graph.id, made) {
            self.happened(now, event);
        }
    }

    /// A graph was loaded in another's place, or not.
    pub(crate) fn graph_loaded(&mut self, now: Instant, event: Event) {
        if self.past.loaded() == When::Present {
            self.happened(now, event);
        }
    }

    /// What became of graphs for exactly a prompt's rows.
    pub(crate) fn exact(&self) -> ExactCounts {
        self.exact.counts()
    }

    /// How the threads of each lane leave their cores to other programs.
    pub(crate) fn absences(&self) -> Vec<Absences> {
        self.lanes.absences()
    }

    /// For those that report to it later.
    pub(crate) fn shared(&self) -> Weak<Shared<B>> {
        Weak::clone(&self.shared)
    }

    /// What a pass waits for is there. Passes are numbered anew after a scheduler failed: one that has the number and waits
    /// looks for its data too soon, and waits on.
    pub(crate) fn data_ready(&mut self, now: Instant, pass: PassId) {
        if self.passes.contains_key(&pass) {
            self.happened(now, Event::DataReady { pass });
        }
    }
}
