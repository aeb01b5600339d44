//! The executors of an engine: devices, each a lane of its own, and the crew of the cores' lanes. Here a node of a pass
//! meets those that its kernel was launched on.
//!
//! Lane `i` is device `i`'s, with one thread that waits for it; the lanes behind the devices are the cores'. A token-wise
//! node goes to the one device of its kernel, or is divided as the scheduler said ([`Share`]): the devices begin, the crew
//! computes the last rows meanwhile, and the results are taken in turn. Everything that no device of the kernel computes
//! is the crew's: of the cores, or, of a kernel on a device alone, of the thread that waits for it.
//!
//! What a device fails to compute is computed by the crew at once, and the pass goes on: nobody's answer ends. The device
//! is not asked again before a probe of it came to a good end, and the scheduler hears that its lane is lost; when to
//! probe, and where work goes meanwhile, is the scheduler's to say. What a device computes is not to the bit what the crew
//! does, so an answer may be worded otherwise after that.
//!
//! Invariants: a node is computed once for each row, or has failed; what is counted is what was computed.

mod device;
mod experts;
mod site;

pub use device::{Device, DeviceWork, Fallback, LinearWork, Silicon};
pub(crate) use site::Site;

use crate::request::EngineError;
use device::DeviceLane;
use duet_model::forward::{Begun, ExpertStats, Node, NodeInputs, NodeOutputs, NotRun, Pass, PreparesRows};
use duet_model::{Model, Work};
use duet_scheduler::Share;
use duet_types::{LaneId, LaneSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All executors of an engine.
#[derive(Debug)]
pub(crate) struct Executors {
    /// Device `i` has lane `i`.
    devices: Vec<DeviceLane>,
    fallback: Fallback,
    work: Work,
    /// Multiply-accumulates that crews did.
    by_crew: AtomicU64,
    /// What was done with experts before anybody counted.
    experts_before: Mutex<ExpertStats>,
}

/// Rows that a device has begun.
struct Part<'a> {
    device: &'a DeviceLane,
    rows: Range<usize>,
    begun: Result<Box<dyn Begun + 'a>, NotRun>,
}

impl Executors {
    pub(crate) fn new(work: Work, devices: Vec<Device>, fallback: Fallback) -> Self {
        let devices = devices.into_iter().map(DeviceLane::new).collect();
        Self { devices, fallback, work, by_crew: AtomicU64::new(0), experts_before: Mutex::default() }
    }

    /// The cores alone.
    pub(crate) fn cores(work: Work) -> Self {
        Self::new(work, Vec::new(), Fallback::Crew)
    }

    /// The devices, in the order of their lanes.
    pub(crate) fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.devices.iter().map(|lane| &lane.device)
    }

    /// The lanes of devices.
    pub(crate) fn device_lanes(&self) -> LaneSet {
        LaneSet::first(self.devices.len() as u8)
    }

    /// The device of a lane; of a lane of cores there is none.
    pub(crate) fn device(&self, lane: LaneId) -> Option<&Device> {
        self.lane(lane).map(|lane| &lane.device)
    }

    /// What makes graphs for exactly a prompt's rows, and the lane that runs them: the first one that can.
    pub(crate) fn prepares(&self) -> Option<(LaneId, Arc<dyn PreparesRows>)> {
        let prepares = |(index, lane): (usize, &DeviceLane)| Some((LaneId(index as u8), lane.prepares()?));
        self.devices.iter().enumerate().find_map(prepares)
    }

    /// Devices that failed and were not probed well since.
    pub(crate) fn failed(&self) -> LaneSet {
        let failed = |lane: &LaneId| self.lane(*lane).is_some_and(DeviceLane::has_failed);
        self.device_lanes().iter().filter(failed).collect()
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
        match node {
            Node::Route { .. } | Node::Experts { .. } => self.run_experts(model, pass, node, site),
            Node::Attention { layer } if rows == (0..pass.rows()) && self.attends(model, pass, layer, site)? => Ok(()),
            Node::Qkv { .. } | Node::Ffn { .. } if self.has_device(site) => self.divide(model, pass, node, rows, site),
            _ => {
                self.did_by_crew(rows.len() as u64 * self.macs(node));
                model.run_node(pass, node, rows, site.crew);
                Ok(())
            }
        }
    }

    /// Runs a token-wise node, each device's rows on it and the others by the crew.
    fn divide(
        &self,
        model: &Model,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let (macs, mut ours) = (self.macs(node), rows.clone());
        let mut parts = Vec::with_capacity(self.devices.len());
        for (device, count) in self.shares(node, rows.len(), site) {
            let theirs = ours.start..ours.start + count;
            ours.start = theirs.end;
            let begun = model.begin_node_on(device.nodes(site), pass, node, theirs.clone());
            parts.push(Part { device, rows: theirs, begun });
        }
        if !ours.is_empty() {
            self.did_by_crew(ours.len() as u64 * macs);
            model.run_node(pass, node, ours, site.crew);
        }
        for Part { device, rows, begun } in parts {
            let ended = begun.and_then(|begun| model.end_node_on(begun, pass, node, rows.clone(), site.crew));
            let work = rows.len() as u64 * macs;
            if !self.took(device, work, ended)? {
                self.did_by_crew(work);
                model.run_node(pass, node, rows, site.crew);
            }
        }
        Ok(())
    }

    /// How many rows of a node each device takes, of those that take some.
    fn shares<'a>(&'a self, node: Node, rows: usize, site: Site<'a>) -> Vec<(&'a DeviceLane, usize)> {
        if site.lanes.len() == 1 {
            return self.usable(site).map(|device| (device, rows)).take(1).collect();
        }
        let of_node = |share: &Share| match node {
            Node::Qkv { .. } => share.qkv,
            _ => share.ffn,
        };
        let mut left = rows;
        let mut shares = Vec::with_capacity(site.shares.len());
        for share in site.shares {
            let count = of_node(share).as_usize().min(left);
            if let Some(device) = self.lane(share.lane).filter(|device| count > 0 && self.is_usable(device)) {
                left -= count;
                shares.push((device, count));
            }
        }
        shares
    }

    /// Runs attention on a device of the site, where it takes that. Whether it did.
    fn attends(&self, model: &Model, pass: &mut Pass, layer: usize, site: Site<'_>) -> Result<bool, EngineError> {
        let able = self.usable(site).find_map(|device| Some((device, device.device.nodes.attention()?)));
        let Some((device, attention)) = able else { return Ok(false) };
        match model.attend_on(attention, pass, layer) {
            // Much attention is not for a device: that is no failure of it.
            Err(NotRun::Unsupported(_)) => Ok(false),
            run => self.took(device, 0, run),
        }
    }

    /// Whether a kernel of these nodes' last needs no pass: the rows are read once, and a device alone computes them.
    pub(crate) fn runs_apart(&self, node: Node, site: Site<'_>) -> bool {
        node.is_token_wise() && site.lanes.len() == 1 && self.usable(site).next().is_some()
    }

    /// Runs some rows of a node on the device of the site. Nothing if it did not run them.
    pub(crate) fn run_apart(
        &self,
        inputs: &NodeInputs,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Option<NodeOutputs>, EngineError> {
        let Some(device) = self.usable(site).next() else { return Ok(None) };
        let macs = rows.len() as u64 * self.macs(inputs.node());
        let mut outputs = None;
        let run = inputs.run_on(device.nodes(site), rows).map(|done| outputs = Some(done));
        self.took(device, macs, run)?;
        Ok(outputs)
    }

    /// Logits of some rows of a pass: on the device of a kernel that has no cores.
    pub(crate) fn logits(
        &self,
        model: &Model,
        pass: &mut Pass,
        rows: &[usize],
        logits: &mut Vec<f32>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let macs = rows.len() as u64 * self.work.head.macs;
        if let Some(device) = self.usable(site).next().filter(|_| site.lanes.len() == 1)
            && self.took(device, macs, model.logits_on(&*device.device.nodes, pass, rows, logits))?
        {
            return Ok(());
        }
        model.logits(pass, rows, logits, site.crew);
        self.did_by_crew(macs);
        Ok(())
    }

    /// Tries whether a device that failed works again: it computes a few rows of zeros.
    pub(crate) fn probe(&self, model: &Model, lane: LaneId) -> Result<(), NotRun> {
        let Some(device) = self.lane(lane) else { return Ok(()) };
        let residual = vec![0.0; PROBED_ROWS * model.blueprint().hidden];
        device.device.nodes.head(&residual, &mut vec![0.0; PROBED_ROWS * model.config().vocabulary])?;
        device.works();
        Ok(())
    }

    /// Devices among these lanes that failed since this was last asked.
    pub(crate) fn take_failures(&self, lanes: LaneSet) -> LaneSet {
        if self.devices.is_empty() || self.fallback == Fallback::Never {
            return LaneSet::EMPTY;
        }
        let failed = |lane: &LaneId| self.lane(*lane).is_some_and(DeviceLane::take_failure);
        lanes.iter().filter(failed).collect()
    }

    /// The crew did linear work of its own.
    pub(crate) fn did_by_crew(&self, macs: u64) {
        self.by_crew.fetch_add(macs, Ordering::Relaxed);
    }

    /// Begins to count: measuring is over, and what it did is nobody's answer.
    pub(crate) fn count_from_here(&self) {
        self.by_crew.store(0, Ordering::Relaxed);
        *self.experts_before.lock().unwrap_or_else(PoisonError::into_inner) = self.all_expert_stats();
        self.devices.iter().for_each(DeviceLane::count_from_here);
    }

    /// Where linear work was done so far.
    pub(crate) fn linear_work(&self) -> LinearWork {
        let devices = self.devices.iter().map(DeviceLane::work).collect();
        LinearWork { devices, on_crew: self.by_crew.load(Ordering::Relaxed) }
    }

    fn macs(&self, node: Node) -> u64 {
        match node {
            Node::Qkv { .. } => self.work.qkv.macs,
            Node::Ffn { .. } => self.work.ffn.macs,
            Node::Embed | Node::Attention { .. } | Node::Route { .. } | Node::Experts { .. } => 0,
        }
    }

    fn lane(&self, lane: LaneId) -> Option<&DeviceLane> {
        self.devices.get(usize::from(lane.0))
    }

    fn has_device(&self, site: Site<'_>) -> bool {
        !site.lanes.without(site.lanes.without(self.device_lanes())).is_empty()
    }

    /// The devices of a site that may be asked.
    fn usable<'a>(&'a self, site: Site<'_>) -> impl Iterator<Item = &'a DeviceLane> + use<'a> {
        let lanes = site.lanes;
        let devices = self.devices.iter().enumerate().filter(move |(index, _)| lanes.contains(LaneId(*index as u8)));
        devices.map(|(_, device)| device).filter(|device| self.is_usable(device))
    }

    fn is_usable(&self, device: &DeviceLane) -> bool {
        self.fallback == Fallback::Never || !device.has_failed()
    }

    /// Takes note of what came of work on a device. Whether it was done.
    fn took(&self, device: &DeviceLane, macs: u64, result: Result<(), NotRun>) -> Result<bool, EngineError> {
        let Err(error) = result else {
            device.did(macs);
            return Ok(true);
        };
        let name = &device.device.name;
        if self.fallback == Fallback::Never {
            device.refused();
            return Err(EngineError::Device { device: name.clone(), error: error.to_string() });
        }
        device.refused();
        if matches!(error, NotRun::Failed(_)) {
            device.failed();
            tracing::warn!("{name} is left alone until it works again, others do its work: {error}");
        }
        Ok(false)
    }
}

/// A handful: a probe is short.
const PROBED_ROWS: usize = 4;

#[cfg(test)]
#[path = "../../model/tests/float_device/mod.rs"]
mod float_device;

#[cfg(test)]
#[path = "executors/tests.rs"]
mod tests;
