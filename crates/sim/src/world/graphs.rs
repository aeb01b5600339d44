//! Graphs for single prompts: compiled, loaded where that takes time of its own, ready.

use super::VirtualWorld;
use crate::answers::Answers;
use crate::client::Graphs;
use duet_scheduler::Event;
use duet_scheduler::machine::ExactGraphs;
use duet_types::{Nanos, Tokens};

/// Bytes that are brought into memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    takes: Nanos,
    bytes_per_s: f64,
}

impl Load {
    pub(super) fn of(graphs: &ExactGraphs, bytes_per_s: f64) -> Self {
        Self { takes: Nanos((graphs.bytes.0 as f64 / bytes_per_s * 1e9) as u64), bytes_per_s }
    }
}

impl<A: Answers> VirtualWorld<A> {
    /// A graph is compiled, and may have to be loaded before anything is to be told.
    pub(super) fn graph_compiled(&mut self) -> Option<Event> {
        let graph = self.compiler.compiled(self.now);
        match (self.client(graph.request).graph, self.graph_load) {
            (Graphs::Fail, _) => {
                self.compiler.failed(self.now);
                Some(Event::GraphFailed { graph: graph.id })
            }
            (Graphs::Compile | Graphs::Slow(_), None) => Some(self.graph_loaded()),
            (Graphs::Compile | Graphs::Slow(_), Some(load)) => {
                self.lanes.load(self.now, load.takes, load.bytes_per_s);
                None
            }
        }
    }

    pub(super) fn graph_loaded(&mut self) -> Event {
        self.lanes.end_load(self.now);
        Event::GraphReady { graph: self.compiler.loaded(self.now).id }
    }

    /// How long a graph is compiled, without being loaded where that is apart.
    pub(super) fn compiling(&self, rows: Tokens) -> Nanos {
        let whole = self.exact.map_or(Nanos::ZERO, |exact| exact.ready_after(rows));
        whole.saturating_sub(self.graph_load.map_or(Nanos::ZERO, |load| load.takes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::machines;
    use crate::truth::Truth;
    use duet_driver::World;
    use duet_scheduler::{Command, Graph, GraphId};
    use duet_types::{Bytes, Class, Instant, RequestId};

    /// Loading is a part of what the lane says that its graphs take, and is apart where its rate is known.
    #[test]
    fn a_graph_is_ready_when_it_is_compiled_and_loaded() {
        let ready = |graph_bytes_per_s: Option<f64>, reclaim: bool| {
            let mut config = machines::npu_igpu();
            let exact = config.machine.lanes[0].capabilities.exact.as_mut().unwrap();
            (exact.compile_per_row, exact.bytes) = (Nanos(1_000), Bytes(3_000_000));
            let truth = Truth { graph_bytes_per_s, ..Truth::of(&config) };
            let mut world = VirtualWorld::new(vec![Client::new(Class::Reactive, 100, 1)], &config, &truth);
            world.next().unwrap();
            let graph = |id| Graph { id: GraphId(id), request: RequestId(0), rows: Tokens(100) };
            world.apply(Instant(0), Command::Prepare(graph(0)));
            if reclaim {
                world.apply(Instant(0), Command::Prepare(graph(1)));
                world.apply(Instant(0), Command::Reclaim(GraphId(0)));
            }
            world.next().unwrap()
        };
        let at = |id| (Instant(5_100_000), Event::GraphReady { graph: GraphId(id) });
        assert_eq!(ready(None, false), at(0));
        assert_eq!(ready(Some(1e9), false), at(0));
        assert_eq!(ready(Some(1e9), true), at(1));
    }
}
