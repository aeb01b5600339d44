//! A device that fails by a plan, around one that works: so that what follows a failure can be tested where it happens.
//!
//! Calls are counted over all graphs of the device, from 0, and the plan says what becomes of which. A hang is a true
//! one: it goes through the same watchdog as an inference of a real device, and what it was lent stays away until the
//! hang is released.

use crate::buffer::{Buffer, Tensors};
use crate::completion::Completion;
use crate::error::Error;
use crate::graph_device::{Emitted, Graph, GraphDevice, GraphSource};
use crate::info::DeviceInfo;
use crate::port::Ports;
use crate::watchdog::{UnderWay, Watched};
use duet_graphs::{ChunkAttention, LayoutRules};
use duet_types::Nanos;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which calls fail, and how. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    compile_fails: BTreeSet<u32>,
    import_fails: BTreeSet<u32>,
    inference_fails: BTreeSet<u32>,
    inference_hangs: BTreeSet<u32>,
    vanishes_before: Option<u32>,
}

impl FaultPlan {
    /// Compiling fails the `nth` time.
    #[must_use]
    pub fn compile_fails(mut self, nth: u32) -> Self {
        self.compile_fails.insert(nth);
        self
    }

    /// Importing fails the `nth` time.
    #[must_use]
    pub fn import_fails(mut self, nth: u32) -> Self {
        self.import_fails.insert(nth);
        self
    }

    /// The `nth` inference fails.
    #[must_use]
    pub fn inference_fails(mut self, nth: u32) -> Self {
        self.inference_fails.insert(nth);
        self
    }

    /// The `nth` inference never ends by itself.
    #[must_use]
    pub fn inference_hangs(mut self, nth: u32) -> Self {
        self.inference_hangs.insert(nth);
        self
    }

    /// From the `nth` inference on the device is gone: that one, all that follow, and all compiling and importing after
    /// it find it lost.
    #[must_use]
    pub fn vanishes_before(mut self, nth: u32) -> Self {
        self.vanishes_before = Some(nth);
        self
    }
}

/// A device that works but for what a plan says.
#[derive(Debug)]
pub struct FaultyDevice<D> {
    device: D,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    plan: FaultPlan,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    compiled: u32,
    imported: u32,
    inferred: u32,
    is_gone: bool,
    hanging: Vec<Arc<Completion>>,
}

impl<D: GraphDevice> FaultyDevice<D> {
    /// `device`, failing by `plan`.
    #[must_use]
    pub fn new(device: D, plan: FaultPlan) -> Self {
        Self { device, faults: Arc::new(Faults { plan, state: Mutex::default() }) }
    }

    /// Ends all hangs so far: what they were lent is given back.
    pub fn release(&self) {
        self.faults.release();
    }
}

impl<D> Drop for FaultyDevice<D> {
    fn drop(&mut self) {
        // No thread may wait for a device that is no more.
        self.faults.release();
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        let hanging = std::mem::take(&mut self.state().hanging);
        hanging.iter().for_each(|completion| completion.tell());
    }

    fn before_compiling(&self) -> Result<(), Error> {
        let mut state = self.state();
        let nth = next(&mut state.compiled);
        state.check_presence()?;
        planned("compile_model", self.plan.compile_fails.contains(&nth))
    }

    fn before_importing(&self) -> Result<(), Error> {
        let mut state = self.state();
        let nth = next(&mut state.imported);
        state.check_presence()?;
        planned("import_model", self.plan.import_fails.contains(&nth))
    }

    /// Something to wait for if this inference is to hang.
    fn before_inferring(&self) -> Result<Option<Arc<Completion>>, Error> {
        let mut state = self.state();
        let nth = next(&mut state.inferred);
        state.is_gone |= self.plan.vanishes_before.is_some_and(|gone| nth >= gone);
        state.check_presence()?;
        planned("ov_infer_request_wait", self.plan.inference_fails.contains(&nth))?;
        if !self.plan.inference_hangs.contains(&nth) {
            return Ok(None);
        }
        let completion = Arc::new(Completion::default());
        state.hanging.push(Arc::clone(&completion));
        Ok(Some(completion))
    }
}

impl State {
    fn check_presence(&self) -> Result<(), Error> {
        if self.is_gone { Err(Error::DeviceLost { message: PLANNED.to_owned() }) } else { Ok(()) }
    }
}

/// What planned failures say.
const PLANNED: &str = "this was planned";

fn planned(call: &'static str, fails: bool) -> Result<(), Error> {
    if fails { Err(Error::refused(call, -1, PLANNED.to_owned())) } else { Ok(()) }
}

fn next(counter: &mut u32) -> u32 {
    let nth = *counter;
    *counter = nth.saturating_add(1);
    nth
}

impl<D: GraphDevice> GraphDevice for FaultyDevice<D> {
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
        self.device.emit(source)
    }

    fn emit_attention(&self, shape: &ChunkAttention) -> Result<Emitted, Error> {
        self.device.emit_attention(shape)
    }

    fn compile_graph(&self, emitted: &Emitted) -> Result<Box<dyn Graph>, Error> {
        self.faults.before_compiling()?;
        let graph = self.device.compile_graph(emitted)?;
        Ok(Box::new(FaultyGraph { graph, faults: Arc::clone(&self.faults), stuck: None }))
    }

    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn Graph>, Error> {
        self.faults.before_importing()?;
        let graph = self.device.import_graph(blob)?;
        Ok(Box::new(FaultyGraph { graph, faults: Arc::clone(&self.faults), stuck: None }))
    }
}

#[derive(Debug)]
struct FaultyGraph {
    graph: Box<dyn Graph>,
    faults: Arc<Faults>,
    /// What was started and hangs.
    stuck: Option<Watched<Stuck>>,
}

impl Graph for FaultyGraph {
    fn ports(&self) -> &Ports {
        self.graph.ports()
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        self.graph.export()
    }

    fn start(&mut self, tensors: Tensors) -> Result<(), Error> {
        self.stuck = None;
        match self.faults.before_inferring()? {
            None => self.graph.start(tensors),
            Some(completion) => {
                self.stuck = Some(Watched::new(Stuck { tensors }, completion));
                Ok(())
            }
        }
    }

    fn wait(&mut self, limit: Nanos) -> Result<Vec<Buffer>, Error> {
        match self.stuck.take() {
            None => self.graph.wait(limit),
            Some(stuck) => stuck.wait_for(limit),
        }
    }
}

/// An inference that hangs, with what it was lent.
#[derive(Debug)]
struct Stuck {
    tensors: Tensors,
}

impl UnderWay for Stuck {
    type Outcome = Vec<Buffer>;

    /// Nothing stops a device that hangs.
    fn cancel(&mut self) {}

    /// The hang was released: an inference of a driver that was reset has failed.
    fn finish(self) -> Result<Vec<Buffer>, Error> {
        drop(self.tensors);
        Err(Error::refused("ov_infer_request_wait", -1, PLANNED.to_owned()))
    }
}
