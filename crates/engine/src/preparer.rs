//! The thread that makes graphs for exactly a prompt's rows while the prompt waits. (Agent.xpu §4.3 ⑤)
//!
//! It makes one graph at a time, in the order in which they were asked for, looks between layers whether the graph is
//! still wanted, and also frees the graphs that are not: taking one apart may take milliseconds, which a lane does not
//! have. It runs at no lower priority than others. Threads that a toolchain starts while it compiles inherit the
//! priority of the thread that compiles, and these are the ones that run the graph later.

use duet_model::forward::{NotPrepared, Prepared, PreparesRows};
use duet_scheduler::{Graph, GraphId};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The thread, as the world holds it. Dropping it calls off what is under way and ends the thread.
#[derive(Debug)]
pub(crate) struct Preparer {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Graph>,
    /// Absent as soon as nobody wants it.
    under_way: Option<GraphId>,
    /// To be freed.
    unwanted: Vec<Prepared>,
    life: Life,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Running,
    Stopped,
}

/// What the thread does next.
enum Work {
    Free(Vec<Prepared>),
    Make(Graph),
}

impl Preparer {
    /// Starts the thread. `done` is called on it with what came of each graph that was begun, also if it was called off.
    pub(crate) fn start(
        device: Arc<dyn PreparesRows>,
        done: impl Fn(Graph, Result<Prepared, NotPrepared>) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("duet-graphs".to_owned()).spawn(move || of_thread.work(&*device, done))?;
        Ok((Self { shared }, thread))
    }

    /// Queues a graph.
    pub(crate) fn prepare(&self, graph: Graph) {
        self.shared.state().waiting.push_back(graph);
        self.shared.changed.notify_one();
    }

    /// Takes a graph back that waits or is under way; that one ends after the layer at which it is.
    pub(crate) fn call_off(&self, id: GraphId) {
        let mut state = self.shared.state();
        state.waiting.retain(|graph| graph.id != id);
        state.under_way = state.under_way.filter(|&under_way| under_way != id);
    }

    /// Frees a graph that is ready, on the thread.
    pub(crate) fn free(&self, graph: Prepared) {
        self.shared.state().unwanted.push(graph);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, device: &dyn PreparesRows, done: impl Fn(Graph, Result<Prepared, NotPrepared>)) {
        while let Some(work) = self.next() {
            match work {
                Work::Free(unwanted) => drop(unwanted),
                Work::Make(graph) => {
                    let wanted = || self.state().under_way == Some(graph.id);
                    let made = catch_unwind(AssertUnwindSafe(|| device.prepare(graph.rows, &wanted)));
                    let made = made.unwrap_or_else(|_| Err(NotPrepared::Failed("compiling panicked".to_owned())));
                    self.state().under_way = None;
                    done(graph, made);
                }
            }
        }
    }

    /// Waits for something to do; nothing when it is over.
    fn next(&self) -> Option<Work> {
        let mut state = self.state();
        loop {
            if state.life == Life::Stopped {
                return None;
            }
            if !state.unwanted.is_empty() {
                return Some(Work::Free(std::mem::take(&mut state.unwanted)));
            }
            if let Some(graph) = state.waiting.pop_front() {
                state.under_way = Some(graph.id);
                return Some(Work::Make(graph));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.life = Life::Stopped;
        state.under_way = None;
        drop(state);
        self.shared.changed.notify_one();
    }
}
