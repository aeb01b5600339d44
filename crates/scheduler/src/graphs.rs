//! Graph residency: which static-shape graphs are being prepared, ready, or given up.
//!
//! A graph belongs to one request and serves its prefill. It is reclaimed when that prefill is done, when its request
//! ends, or when it stood unused for too long; what expired once is not prepared again, since its request waits longer
//! than its graph is worth. (Agent.xpu §4.3 ⑤)

use crate::command::{Graph, GraphId};
use duet_types::{Instant, RequestId, Tokens};
use std::collections::BTreeMap;

/// All graphs, by the request each is for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graphs {
    entries: BTreeMap<RequestId, Entry>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    graph: Graph,
    state: GraphState,
}

/// Where a graph stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphState {
    /// It is compiled.
    Preparing,
    /// It can be used since then.
    Ready {
        /// When it became ready, or was last used.
        since: Instant,
    },
    /// There is none, and there will be none.
    GivenUp,
}

impl Graphs {
    pub(crate) fn state(&self, request: RequestId) -> Option<GraphState> {
        self.entries.get(&request).map(|entry| entry.state)
    }

    /// Whether its graph is ready and takes so many rows.
    pub(crate) fn is_ready_for(&self, request: RequestId, rows: Tokens) -> bool {
        let entry = self.entries.get(&request).filter(|entry| entry.graph.rows == rows);
        entry.is_some_and(|entry| matches!(entry.state, GraphState::Ready { .. }))
    }

    /// Graphs being prepared or ready.
    pub(crate) fn resident(&self) -> impl Iterator<Item = (RequestId, GraphState)> {
        let all = self.entries.iter().map(|(&request, entry)| (request, entry.state));
        all.filter(|(_, state)| *state != GraphState::GivenUp)
    }

    pub(crate) fn prepare(&mut self, request: RequestId, rows: Tokens) -> Graph {
        let graph = Graph { id: GraphId(self.next), request, rows };
        self.next += 1;
        self.entries.insert(request, Entry { graph, state: GraphState::Preparing });
        graph
    }

    /// A graph is ready. It may have been reclaimed meanwhile.
    pub(crate) fn ready(&mut self, now: Instant, id: GraphId) {
        if let Some(entry) = self.by_id(id)
            && entry.state == GraphState::Preparing
        {
            entry.state = GraphState::Ready { since: now };
        }
    }

    pub(crate) fn failed(&mut self, id: GraphId) {
        if let Some(entry) = self.by_id(id) {
            entry.state = GraphState::GivenUp;
        }
    }

    pub(crate) fn used(&mut self, now: Instant, request: RequestId) {
        if let Some(entry) = self.entries.get_mut(&request)
            && let GraphState::Ready { since } = &mut entry.state
        {
            *since = now;
        }
    }

    /// Gives a graph up. Returns it if there was one to free.
    pub(crate) fn give_up(&mut self, request: RequestId) -> Option<GraphId> {
        let entry = self.entries.get_mut(&request)?;
        let resident = entry.state != GraphState::GivenUp;
        entry.state = GraphState::GivenUp;
        resident.then_some(entry.graph.id)
    }

    /// Forgets a request. Returns its graph if there is one to free.
    pub(crate) fn remove(&mut self, request: RequestId) -> Option<GraphId> {
        let entry = self.entries.remove(&request)?;
        (entry.state != GraphState::GivenUp).then_some(entry.graph.id)
    }

    fn by_id(&mut self, id: GraphId) -> Option<&mut Entry> {
        self.entries.values_mut().find(|entry| entry.graph.id == id)
    }
}
