//! The graph compiler: one graph after another, each for as long as its lane says, or longer, and then loaded, which the
//! [lanes](crate::lanes) time, since it shares the memory with them.

use duet_scheduler::{Graph, GraphId};
use duet_types::{Instant, Nanos, RequestId, Tokens};
use std::collections::{BTreeMap, VecDeque};

/// Graphs, and those that are being compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compiler {
    /// Graphs to come, and how long each takes.
    queue: VecDeque<(Graph, Nanos)>,
    compiling: Option<(Graph, Instant)>,
    /// The one that is compiled and not there yet.
    loading: Option<Graph>,
    ready: BTreeMap<GraphId, Graph>,
    /// For how long it has worked on graphs that it has done with.
    worked: Nanos,
    /// When the graph under way was begun.
    since: Instant,
}

impl Compiler {
    pub(crate) fn prepare(&mut self, now: Instant, graph: Graph, time: Nanos) {
        self.queue.push_back((graph, time));
        self.start_next(now);
    }

    /// When the graph under way will be compiled.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.compiling.map(|(_, at)| at)
    }

    /// The graph under way is compiled.
    pub(crate) fn compiled(&mut self, now: Instant) -> Graph {
        let (graph, at) = self.compiling.take().expect("a graph is being compiled");
        assert_eq!(at, now, "graphs are ready when their time has come");
        self.worked += now - self.since;
        self.loading = Some(graph);
        graph
    }

    /// The graph that was compiled last is there.
    pub(crate) fn loaded(&mut self, now: Instant) -> Graph {
        let graph = self.loading.take().expect("a graph is being loaded");
        self.ready.insert(graph.id, graph);
        self.start_next(now);
        graph
    }

    /// The graph that was compiled last is of no use.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.loading = None;
        self.start_next(now);
    }

    /// Whether this graph is compiled and not there yet.
    pub(crate) fn is_loading(&self, id: GraphId) -> bool {
        self.loading.is_some_and(|graph| graph.id == id)
    }

    pub(crate) fn reclaim(&mut self, now: Instant, id: GraphId) {
        self.ready.remove(&id);
        self.queue.retain(|(graph, _)| graph.id != id);
        if self.compiling.is_some_and(|(graph, _)| graph.id == id) {
            self.worked += now - self.since;
            self.compiling = None;
            self.start_next(now);
        }
        if self.is_loading(id) {
            self.failed(now);
        }
    }

    /// For how long it has worked.
    pub(crate) fn worked(&self) -> Nanos {
        self.worked
    }

    /// Whether there is a graph for `rows` rows of a request.
    pub(crate) fn is_ready(&self, request: RequestId, rows: Tokens) -> bool {
        self.ready.values().any(|graph| graph.request == request && graph.rows == rows)
    }

    /// Whether a graph of the request is still there.
    pub(crate) fn has_any(&self, request: RequestId) -> bool {
        let waiting = self.queue.iter().map(|(graph, _)| graph);
        let under_way = self.compiling.as_ref().map(|(graph, _)| graph).into_iter().chain(&self.loading);
        let mut all = waiting.chain(self.ready.values()).chain(under_way);
        all.any(|graph| graph.request == request)
    }

    fn start_next(&mut self, now: Instant) {
        if self.compiling.is_none() && self.loading.is_none() {
            self.since = now;
            self.compiling = self.queue.pop_front().map(|(graph, time)| (graph, now + time));
        }
    }
}
