//! Graphs for exactly a prompt's rows, as the world keeps them: asked for, ready, used, given back. (Agent.xpu §4.3 ⑤)
//!
//! The scheduler says what is to be made and when it may go, so it also bounds how many there are. Nothing in here
//! compiles or frees: the [`Preparer`]'s thread does.
//!
//! Invariants: a graph is with the preparer, ready, or gone; one that was given back while it was made is freed when it
//! comes. `ready = resident + reclaimed`, and every graph that was asked for is ready, failed, called off, or still made.

use crate::preparer::Preparer;
use duet_model::forward::{NotPrepared, Prepared, TokenWise};
use duet_scheduler::{Event, Graph, GraphId, Kernel};
use duet_types::{Bytes, LaneId, LaneSet, Tokens};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The graphs for which there are requests.
#[derive(Debug, Default)]
pub(crate) struct ExactGraphs {
    /// Absent where no device makes such graphs, and once the engine stops.
    preparer: Option<Preparer>,
    /// The lane that runs them.
    lanes: LaneSet,
    graphs: BTreeMap<GraphId, Entry>,
    counts: ExactCounts,
}

#[derive(Debug)]
struct Entry {
    graph: Graph,
    state: State,
}

#[derive(Debug)]
enum State {
    Preparing,
    Ready(Prepared, Use),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Unused,
    Used,
}

/// What became of graphs for exactly a prompt's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExactCounts {
    /// Asked for.
    pub asked: u64,
    /// Compiled and loaded.
    pub ready: u64,
    /// Of these, those that some kernel ran on.
    pub used: u64,
    /// Kernels that ran on one.
    pub kernels: u64,
    /// Given up before they were ready: the prompt went, or was read without.
    pub called_off: u64,
    /// Not made, because the device did not take them.
    pub failed: u64,
    /// Freed again.
    pub reclaimed: u64,
    /// Ready and not freed.
    pub resident: u64,
    /// What these take.
    pub resident_bytes: Bytes,
}

impl ExactGraphs {
    pub(crate) fn new(preparer: Option<(LaneId, Preparer)>) -> Self {
        let lanes = preparer.iter().map(|(lane, _)| *lane).collect();
        Self { preparer: preparer.map(|(_, preparer)| preparer), lanes, ..Self::default() }
    }

    /// Has a graph made. What is to be told at once, if none can be.
    pub(crate) fn prepare(&mut self, graph: Graph) -> Option<Event> {
        let Some(preparer) = &self.preparer else { return Some(Event::GraphFailed { graph: graph.id }) };
        self.counts.asked += 1;
        self.graphs.insert(graph.id, Entry { graph, state: State::Preparing });
        preparer.prepare(graph);
        None
    }

    /// A graph was made, or not. What is to be told, if somebody still waits for it.
    pub(crate) fn prepared(&mut self, id: GraphId, made: Result<Prepared, NotPrepared>) -> Option<Event> {
        match (self.graphs.get_mut(&id), made) {
            (Some(entry), Ok(prepared)) => {
                self.counts.ready += 1;
                self.counts.resident += 1;
                self.counts.resident_bytes += prepared.bytes;
                entry.state = State::Ready(prepared, Use::Unused);
                Some(Event::GraphReady { graph: id })
            }
            (Some(_), Err(error)) => {
                tracing::warn!("a prompt is read without a graph of its own: {error}");
                self.counts.failed += 1;
                self.graphs.remove(&id);
                Some(Event::GraphFailed { graph: id })
            }
            (None, made) => {
                self.unwanted(made);
                None
            }
        }
    }

    /// Gives a graph back, wherever it stands.
    pub(crate) fn reclaim(&mut self, id: GraphId) {
        match self.graphs.remove(&id).map(|entry| entry.state) {
            Some(State::Ready(prepared, _)) => {
                self.counts.reclaimed += 1;
                self.counts.resident -= 1;
                self.counts.resident_bytes -= prepared.bytes;
                self.free(prepared);
            }
            Some(State::Preparing) => {
                self.counts.called_off += 1;
                if let Some(preparer) = &self.preparer {
                    preparer.call_off(id);
                }
            }
            None => {}
        }
    }

    /// A graph was made, or not, for a request that nobody knows any more.
    pub(crate) fn unwanted(&mut self, made: Result<Prepared, NotPrepared>) {
        if let Ok(prepared) = made {
            self.free(prepared);
        }
    }

    /// Gives all graphs back.
    pub(crate) fn reclaim_all(&mut self) {
        let all: Vec<GraphId> = self.graphs.keys().copied().collect();
        all.into_iter().for_each(|id| self.reclaim(id));
    }

    /// The graph that a kernel on these lanes can run on: its only member's, if it takes exactly the kernel's rows.
    pub(crate) fn of_kernel(&mut self, lanes: LaneSet, kernel: &Kernel) -> Option<Arc<dyn TokenWise>> {
        if lanes != self.lanes {
            return None;
        }
        let [member] = &kernel.members[..] else { return None };
        let rows = Tokens(kernel.rows.end - kernel.rows.start);
        let fits = |entry: &&mut Entry| entry.graph.request == member.request && entry.graph.rows == rows;
        let State::Ready(prepared, used) = &mut self.graphs.values_mut().find(fits)?.state else { return None };
        self.counts.kernels += 1;
        self.counts.used += u64::from(*used == Use::Unused);
        *used = Use::Used;
        Some(Arc::clone(&prepared.kernels))
    }

    /// Makes no more graphs.
    pub(crate) fn stop(&mut self) {
        self.preparer = None;
    }

    pub(crate) fn counts(&self) -> ExactCounts {
        self.counts
    }

    fn free(&self, prepared: Prepared) {
        // Once the engine stops nobody has a lane to spare it for.
        if let Some(preparer) = &self.preparer {
            preparer.free(prepared);
        }
    }
}
