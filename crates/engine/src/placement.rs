//! Where the linear work of a pass is done: on a device, if there is one that works, or by the crew.
//!
//! A device is used in one of three ways. Alone, it does all linear work. As a lane of its own it does that of the kernels
//! which the scheduler launches there, and of a kernel that is launched on all lanes the [share](crate::sharing) with
//! which it ends together with the cores; the cores compute theirs meanwhile, and the rows are joined after every node. As
//! a static lane, which is the NPU of the paper, it does that of the chunks that the scheduler launches there, beside the
//! cores ([`SharedPass`](crate::shared_pass::SharedPass)), and of whole prompts on graphs for exactly their rows.
//!
//! A device that fails loses its kernel to the crew, and the pass goes on with what it has: nobody's answer ends. The
//! device is then left alone for a while, for twice as long after each failure in a row. What a device computes is not to
//! the bit what the crew does, so an answer may be worded otherwise after that.
//!
//! Invariants: a kernel is run once, in one place, or has failed; what is counted is what was run.

mod experts;

use crate::clock::Clock;
use crate::exchange::GraphExchange;
use crate::request::EngineError;
use crate::sharing::Sharing;
use crate::site::{DeviceSide, Site};
use duet_model::forward::{Node, NodeInputs, NodeOutputs, NotRun, Pass, PreparesRows, TokenWise};
use duet_model::{Model, Work};
use duet_scheduler::Heg;
use duet_scheduler::machine::Lane;
use duet_types::{Instant, Nanos, Tokens};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A device that linear work goes to.
#[derive(Clone, Debug)]
pub struct Offload {
    /// What it is called, `openvino:CPU` for example.
    pub name: String,
    /// The device, with the model's weights.
    pub device: Arc<dyn TokenWise>,
    /// What happens to a kernel that it does not run.
    pub fallback: Fallback,
    /// Which work it gets.
    pub device_use: DeviceUse,
    /// How its graphs are exchanged, if it has no room for all of them.
    pub exchange: Option<GraphExchange>,
}

/// Which work a device gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceUse {
    /// All linear work.
    Alone,
    /// It is a lane of its own: what the scheduler launches there.
    Lane,
    /// It is a lane of its own that takes chunks, and whole prompts for which it has graphs. (Agent.xpu §4.3)
    Static,
}

/// What happens to a kernel that a device does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The crew runs it.
    Crew,
    /// Its requests fail.
    Never,
}

/// Where linear work was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinearWork {
    /// The device, if there is one.
    pub device: Option<String>,
    /// Multiply-accumulates that it did.
    pub on_device: u64,
    /// Multiply-accumulates that the crew did.
    pub on_crew: u64,
    /// Kernels that it did not run.
    pub refused: u64,
}

impl Offload {
    /// What a profile calls it: one device is measured differently in its uses.
    pub(crate) fn as_a_lane(&self) -> String {
        match self.device_use {
            DeviceUse::Alone | DeviceUse::Lane => self.name.clone(),
            DeviceUse::Static => format!("{} static", self.name),
        }
    }

    /// The device's kernels for what runs at a site: those that were made for exactly its rows, if there are any.
    fn on<'a>(&'a self, site: Site<'a>) -> &'a dyn TokenWise {
        site.exact.unwrap_or(&*self.device)
    }
}

impl LinearWork {
    /// The device's share of the multiply-accumulates; 0 if there were none.
    #[must_use]
    pub fn device_share(&self) -> f64 {
        self.on_device as f64 / (self.on_device + self.on_crew).max(1) as f64
    }
}

/// Decides for each kernel and runs it.
#[derive(Debug)]
pub(crate) struct Placement {
    offload: Option<Offload>,
    work: Work,
    /// Known once the lanes are measured.
    sharing: OnceLock<Sharing>,
    clock: Clock,
    quarantine: Mutex<Quarantine>,
    on_device: AtomicU64,
    on_crew: AtomicU64,
    refused: AtomicU64,
}

/// For how long a device is left alone.
#[derive(Clone, Copy, Debug, Default)]
struct Quarantine {
    until: Instant,
    /// In a row.
    failures: u32,
}

impl Placement {
    pub(crate) fn new(work: Work, offload: Option<Offload>) -> Self {
        let [on_device, on_crew, refused] = Default::default();
        let (clock, quarantine, sharing) = (Clock::start(), Mutex::default(), OnceLock::new());
        Self { offload, work, sharing, clock, quarantine, on_device, on_crew, refused }
    }

    /// How the device's graphs are exchanged, if they are.
    pub(crate) fn exchange(&self) -> Option<&GraphExchange> {
        self.offload.as_ref()?.exchange.as_ref()
    }

    /// The device that is a lane of its own, and is not all there is.
    pub(crate) fn device_lane(&self) -> Option<&Offload> {
        self.offload.as_ref().filter(|offload| offload.device_use != DeviceUse::Alone)
    }

    /// What makes graphs for exactly a prompt's rows, if that is what the device's lane runs.
    pub(crate) fn prepares(&self) -> Option<Arc<dyn PreparesRows>> {
        let offload = self.offload.as_ref().filter(|offload| offload.device_use == DeviceUse::Static)?;
        Arc::clone(&offload.device).prepares()
    }

    /// The lanes are measured: from now on kernels can be shared between the device, if it is one of them, and the cores.
    pub(crate) fn measured(&self, heg: &Heg, lanes: &[Lane]) {
        if let (Some(_), [device, .., cores]) = (self.device_lane(), lanes) {
            // What is measured once is not measured again.
            let _ = self.sharing.set(Sharing::new(heg.clone(), device.anchors, cores.anchors));
        }
    }

    /// Runs a node on some rows of a pass.
    pub(crate) fn run_node(
        &self,
        model: &Model,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        if node.is_of_experts() {
            return self.run_experts(model, pass, node, site);
        }
        if let Node::Attention { layer } = node
            && rows == (0..pass.rows())
            && self.attends(model, pass, layer)?
        {
            return Ok(());
        }
        let (macs, crew) = (self.macs(node), site.crew);
        let theirs = self.device_rows(node, rows.len(), site);
        let mut left = rows.clone();
        if let (Some(offload), 1..) = (self.usable(), theirs) {
            let on_device = rows.start..rows.start + theirs;
            let run = model.run_node_beside(offload.on(site), pass, node, rows.clone(), theirs, crew);
            self.did_on_crew((rows.len() - theirs) as u64 * macs);
            left = if self.took(offload, theirs as u64 * macs, run)? { 0..0 } else { on_device };
        }
        if !left.is_empty() {
            model.run_node(pass, node, left.clone(), crew);
            self.did_on_crew(left.len() as u64 * macs);
        }
        Ok(())
    }

    /// Runs attention on the device, where it takes that. Whether it did.
    fn attends(&self, model: &Model, pass: &mut Pass, layer: usize) -> Result<bool, EngineError> {
        let Some(offload) = self.usable() else { return Ok(false) };
        let Some(device) = offload.device.attention() else { return Ok(false) };
        match model.attend_on(device, pass, layer) {
            // Much attention is not for a device: that is no failure of it.
            Err(NotRun::Unsupported(_)) => Ok(false),
            run => self.took(offload, 0, run),
        }
    }

    /// Whether rows of this node go to the device while the cores have others.
    pub(crate) fn runs_apart(&self, node: Node) -> bool {
        let device_use = self.offload.as_ref().map(|offload| offload.device_use);
        device_use == Some(DeviceUse::Static) && self.macs(node) > 0 && self.usable().is_some()
    }

    /// Runs some rows of a node on the device. Nothing if it did not run them.
    pub(crate) fn run_apart(
        &self,
        inputs: &NodeInputs,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Option<NodeOutputs>, EngineError> {
        let Some(offload) = self.usable() else { return Ok(None) };
        let macs = rows.len() as u64 * self.macs(inputs.node());
        let mut outputs = None;
        let run = inputs.run_on(offload.on(site), rows).map(|done| outputs = Some(done));
        self.took(offload, macs, run)?;
        Ok(outputs)
    }

    /// How many of some rows of a node are for the device, the first of them.
    fn device_rows(&self, node: Node, rows: usize, site: Site<'_>) -> usize {
        let device_use = self.offload.as_ref().map(|offload| offload.device_use);
        match (device_use, site.of_device()) {
            _ if self.macs(node) == 0 => 0,
            (None, _) | (Some(DeviceUse::Lane | DeviceUse::Static), DeviceSide::Cores) => 0,
            (Some(DeviceUse::Alone), _) | (Some(DeviceUse::Lane | DeviceUse::Static), DeviceSide::Device) => rows,
            (Some(DeviceUse::Lane | DeviceUse::Static), DeviceSide::Both) => {
                self.sharing.get().map_or(0, |sharing| sharing.device_rows(node, Tokens(rows as u32)).as_usize())
            }
        }
    }

    /// Logits of some rows of a pass.
    pub(crate) fn logits(
        &self,
        model: &Model,
        pass: &mut Pass,
        rows: &[usize],
        logits: &mut Vec<f32>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let macs = rows.len() as u64 * self.work.head.macs;
        if let Some(offload) = self.usable()
            && (offload.device_use == DeviceUse::Alone || site.of_device() == DeviceSide::Device)
            && self.took(offload, macs, model.logits_on(&*offload.device, pass, rows, logits))?
        {
            return Ok(());
        }
        model.logits(pass, rows, logits, site.crew);
        self.did_on_crew(macs);
        Ok(())
    }

    /// The crew did linear work of its own.
    pub(crate) fn did_on_crew(&self, macs: u64) {
        self.on_crew.fetch_add(macs, Ordering::Relaxed);
    }

    /// Begins to count: measuring is over, and what it did is nobody's answer.
    pub(crate) fn count_from_here(&self) {
        [&self.on_device, &self.on_crew, &self.refused].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    /// Where linear work was done so far.
    pub(crate) fn linear_work(&self) -> LinearWork {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LinearWork {
            device: self.offload.as_ref().map(|offload| offload.name.clone()),
            on_device: count(&self.on_device),
            on_crew: count(&self.on_crew),
            refused: count(&self.refused),
        }
    }

    fn macs(&self, node: Node) -> u64 {
        match node {
            Node::Embed | Node::Attention { .. } | Node::Route { .. } | Node::Experts { .. } => 0,
            Node::Qkv { .. } => self.work.qkv.macs,
            Node::Ffn { .. } => self.work.ffn.macs,
        }
    }

    /// The device, if it may be tried now.
    fn usable(&self) -> Option<&Offload> {
        let offload = self.offload.as_ref()?;
        let quarantine = *self.quarantine.lock().unwrap_or_else(PoisonError::into_inner);
        let tried =
            offload.fallback == Fallback::Never || quarantine.failures == 0 || self.clock.now() >= quarantine.until;
        tried.then_some(offload)
    }

    /// Takes note of what came of a kernel on the device. Whether it was run.
    fn took(&self, offload: &Offload, macs: u64, result: Result<(), NotRun>) -> Result<bool, EngineError> {
        let Err(error) = result else {
            self.on_device.fetch_add(macs, Ordering::Relaxed);
            self.quarantine.lock().unwrap_or_else(PoisonError::into_inner).failures = 0;
            return Ok(true);
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        if offload.fallback == Fallback::Never {
            return Err(EngineError::Device { device: offload.name.clone(), error: error.to_string() });
        }
        if matches!(error, NotRun::Failed(_)) {
            self.quarantine(&offload.name, &error);
        }
        Ok(false)
    }

    fn quarantine(&self, name: &str, error: &NotRun) {
        let mut quarantine = self.quarantine.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = Nanos(BACK_OFF_FIRST.0 << quarantine.failures.min(BACK_OFF_DOUBLINGS));
        *quarantine = Quarantine { until: self.clock.now() + wait, failures: quarantine.failures + 1 };
        tracing::warn!("{name} is left alone for {:.1} s, the CPU does its work: {error}", wait.as_secs_f64());
    }
}

/// After the first failure.
const BACK_OFF_FIRST: Nanos = Nanos(1_000_000_000);
/// Up to a minute or so.
const BACK_OFF_DOUBLINGS: u32 = 6;

#[cfg(test)]
#[path = "../../model/tests/float_device/mod.rs"]
mod float_device;

#[cfg(test)]
mod tests {
    use super::float_device::FloatDevice;
    use super::*;
    use duet_kernels::crew::Solo;
    use duet_model::LoadOptions;
    use duet_model::forward::{Activations, Segment};
    use duet_model::kv::KvFormat;
    use duet_scheduler::machine::{Anchors, FewRows, PerRow, Shapes};
    use duet_types::{LaneId, LaneSet, TokenId};
    use std::path::Path;

    const ROWS: u32 = 48;

    fn lane(macs_per_s: f64) -> Lane {
        let anchors = Anchors {
            macs_per_s,
            attention_macs_per_s: 1e9,
            bytes_per_s: 1e15,
            launch: Nanos::ZERO,
            exposed: 0.0,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        };
        Lane { name: "lane".to_owned(), shapes: Shapes::Dynamic, anchors }
    }

    /// Rows of a node that the device and the crew compute of a kernel that is launched on these lanes.
    fn shares(lanes: LaneSet, node: Node) -> [u64; 2] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let device = Arc::new(FloatDevice::new(&model));
        let (fallback, device_use) = (Fallback::Never, DeviceUse::Lane);
        let offload = Offload { name: "float".to_owned(), device, fallback, device_use, exchange: None };
        let placement = Placement::new(model.work(), Some(offload));
        placement.measured(&crate::profile::heg(&model, KvFormat::F16), &[lane(2e9), lane(1e9)]);
        let table = model.kv_pool(KvFormat::F16, Tokens(ROWS)).table();
        let segment = Segment::new(table, (3..3 + ROWS).map(TokenId).collect());
        let mut pass = Pass::new(&model, Activations::new(&model, ROWS as usize), vec![segment]).unwrap();
        model.run_node(&mut pass, Node::Embed, 0..ROWS as usize, &Solo);
        placement.run_node(&model, &mut pass, node, 0..ROWS as usize, Site::new(lanes, &Solo)).unwrap();
        let LinearWork { on_device, on_crew, .. } = placement.linear_work();
        [on_device, on_crew].map(|macs| macs / placement.macs(node))
    }

    #[test]
    fn rows_go_to_the_lanes_of_their_kernel() {
        let (device, cores) = (LaneSet::from_iter([LaneId(0)]), LaneSet::from_iter([LaneId(1)]));
        for node in [Node::Qkv { layer: 0 }, Node::Ffn { layer: 0 }] {
            assert_eq!(shares(device, node), [48, 0]);
            assert_eq!(shares(cores, node), [0, 48]);
            // Twice as fast, it has twice as many.
            assert_eq!(shares(device.union(cores), node), [32, 16]);
        }
    }
}
