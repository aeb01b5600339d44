//! A device around one that works: graphs for chunks wait while the stage is held, and the others may be made to work
//! once only.

use duet_graphs::{LayoutRules, Rows};
use duet_runtimes::{Buffer, DeviceInfo, Digest, Emitted, Error, Graph, GraphDevice, GraphSource, Ports, Tensors};
use duet_types::{Nanos, Tokens};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What the test and the device share.
#[derive(Debug, Default)]
pub(super) struct Stage {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Held,
}

/// What becomes of graphs for exactly a prompt's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnGraphs {
    Work,
    /// They work when they are tried, and never again.
    WorkOnce,
}

/// The device.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) device: Arc<dyn GraphDevice>,
    pub(super) stage: Arc<Stage>,
    pub(super) own_graphs: OwnGraphs,
    /// Rows of graphs, as they are written down.
    pub(super) rows: Mutex<BTreeMap<[u8; 32], Rows>>,
}

#[derive(Debug)]
struct StagedGraph {
    graph: Box<dyn Graph>,
    stage: Arc<Stage>,
    fate: Fate,
    runs: u32,
}

/// What starting a graph does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    Runs,
    RunsOnce,
}

impl Stage {
    /// From now on graphs of chunks wait.
    pub(super) fn hold(&self) {
        *self.state.lock().unwrap() = State::Held;
    }

    /// They go on.
    pub(super) fn open(&self) {
        *self.state.lock().unwrap() = State::Open;
        self.changed.notify_all();
    }

    fn enter(&self) {
        let state = self.state.lock().unwrap();
        let longest = Duration::from_secs(60);
        drop(self.changed.wait_timeout_while(state, longest, |state| *state == State::Held).unwrap());
    }
}

impl GraphDevice for Staged {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn rules(&self) -> LayoutRules {
        self.device.rules()
    }

    fn toolchain(&self) -> &str {
        self.device.toolchain()
    }

    fn settings(&self) -> String {
        self.device.settings()
    }

    fn tolerance(&self) -> f64 {
        self.device.tolerance()
    }

    fn emit(&self, source: &GraphSource<'_>) -> Result<Emitted, Error> {
        let emitted = self.device.emit(source)?;
        let Digest(digest) = emitted.digest();
        self.rows.lock().unwrap().insert(digest, source.rows);
        Ok(emitted)
    }

    fn compile_graph(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, Error> {
        let rows = self.rows.lock().unwrap().get(&emitted.digest().0).copied();
        let fate = match (rows, self.own_graphs) {
            (Some(Rows::Static(Tokens(32 | 256))), _) => Fate::Waits,
            (_, OwnGraphs::Work) => Fate::Runs,
            (_, OwnGraphs::WorkOnce) => Fate::RunsOnce,
        };
        let graph = self.device.compile_graph(emitted)?;
        Ok(Box::new(StagedGraph { graph, stage: Arc::clone(&self.stage), fate, runs: 0 }))
    }

    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn Graph>, Error> {
        self.device.import_graph(blob)
    }
}

impl Graph for StagedGraph {
    fn ports(&self) -> &Ports {
        self.graph.ports()
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        self.graph.export()
    }

    fn start(&mut self, tensors: Tensors) -> Result<(), Error> {
        self.runs += 1;
        match self.fate {
            Fate::Waits => self.stage.enter(),
            Fate::RunsOnce if self.runs > 1 => {
                return Err(Error::DeviceLost { message: "it was tried, and that was that".to_owned() });
            }
            Fate::Runs | Fate::RunsOnce => {}
        }
        self.graph.start(tensors)
    }

    fn wait(&mut self, limit: Nanos) -> Result<Vec<Buffer>, Error> {
        self.graph.wait(limit)
    }
}
