//! The executors of an engine: devices, each a lane of its own, and the cores, which are one whichever of their lanes a
//! kernel has. Here a node of a pass meets those that its kernel was launched on.
//!
//! Both are an [`Executor`]: it says what it can do, begins a node for some rows, and takes note of what came of that. Lane
//! `i` is device `i`'s, with one thread that waits for it; the lanes behind the devices are the cores'. A token-wise node
//! goes to the one device of its kernel, or is divided as the scheduler said (`Site::shares`): the devices begin, the cores
//! compute the last rows meanwhile, and the results are taken in turn. Everything that no device of the kernel computes is
//! the crew's: of the cores, or, of a kernel on a device alone, of the thread that waits for it. Attention and experts have
//! no rows to divide: a device takes all of a pass, or says which places of its rows it computes (`experts.rs`).
//! (Agent.xpu §4.3 ④)
//!
//! What a device fails to compute is computed by the crew at once, and the pass goes on: nobody's answer ends. The device
//! is not asked again before a probe of it came to a good end, and the scheduler hears that its lane is lost; when to
//! probe, and where work goes meanwhile, is the scheduler's to say. What a device computes is not to the bit what the crew
//! does, so an answer may be worded otherwise after that.
//!
//! Invariants: a node is computed once for each row, or has failed; what is counted is what was computed; a node on cores
//! alone allocates nothing here.

mod attention;
mod device;
mod executor;
mod experts;
mod site;

pub use device::{Device, DeviceWork, Fallback, LinearWork};
pub(crate) use site::{Ran, Site};

use crate::request::EngineError;
use device::DeviceLane;
use duet_model::forward::{
    AttentionStats, BestOfRow, Came, ExpertStats, Node, NodeInputs, NodeOutputs, NotRun, Pass, PreparesRows, SpanWise,
};
use duet_model::{ExpertUnread, Model, Work};
use duet_scheduler::machine::Capabilities;
use duet_scheduler::{Heg, Machine, OnMiss};
use duet_types::{LaneId, LaneSet};
use executor::{Cores, Ended, Executor, Task};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// All executors of an engine.
#[derive(Debug)]
pub(crate) struct Executors {
    /// Device `i` has lane `i`.
    devices: Vec<DeviceLane>,
    cores: Cores,
    work: Work,
    /// What was done with experts before anybody counted.
    experts_before: Mutex<ExpertStats>,
    /// The same of attention.
    attention_before: Mutex<AttentionStats>,
}

impl Executors {
    pub(crate) fn new(work: Work, devices: Vec<Device>, fallback: Fallback) -> Self {
        let on_lane = |(lane, device)| DeviceLane::new(LaneId(lane), device, fallback);
        let devices = (0..).zip(devices).map(on_lane).collect();
        let (experts_before, attention_before) = Default::default();
        Self { devices, cores: Cores::default(), work, experts_before, attention_before }
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
        self.devices.iter().find_map(|device| Some((device.lane, Arc::clone(device.prepares()?))))
    }

    /// The same graph, as it is predicted with: launches of experts take all rows, and so do devices that run spans, whoever
    /// reads them.
    pub(crate) fn as_computed(&self, heg: Heg) -> Heg {
        let takes_all = self.launches() > 0 || self.devices().any(|device| device.spans.is_some());
        Heg { for_head: heg.for_head.filter(|_| !takes_all), ..heg }
    }

    /// What the executor of a lane can do, as far as it knows without a measurement.
    pub(crate) fn capabilities(&self, lane: LaneId) -> Capabilities {
        self.lane(lane).map_or(&self.cores as &dyn Executor, |device| device).capabilities()
    }

    /// The layers of a model that the devices among some lanes hold, all of them.
    pub(crate) fn held(&self, lanes: LaneSet) -> Range<usize> {
        let held = lanes.iter().filter_map(|lane| self.lane(lane)?.device.layers.as_ref().map(|layers| layers.held()));
        held.fold(0..self.work.layers, |all, held| all.start.max(held.start)..all.end.min(held.end))
    }

    /// Tells devices which layers to hold, as a machine has it.
    pub(crate) fn hold_as(&self, machine: &Machine) -> Result<(), EngineError> {
        let planned = self.devices.iter().zip(&machine.lanes);
        planned
            .filter_map(|(device, lane)| Some((device, lane.capabilities.layers?)))
            .try_for_each(|(device, layers)| device.hold(layers))
    }

    /// Devices that failed and were not probed well since.
    pub(crate) fn failed(&self) -> LaneSet {
        let failed = |lane: &LaneId| self.lane(*lane).is_some_and(DeviceLane::has_failed);
        self.device_lanes().iter().filter(failed).collect()
    }

    /// Runs nodes on some rows of a pass: as a span where the kernel is a device's alone that runs such, and it has all rows;
    /// else one after the other. Weights on disk are no device's.
    pub(crate) fn run_nodes(
        &self,
        model: &Model,
        pass: &mut Pass,
        nodes: impl Iterator<Item = Node> + Clone,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Ran, EngineError> {
        let holds = |device: &DeviceLane| nodes.clone().all(|node| device.holds(node));
        let span = self.spanning(site).filter(|(device, _)| rows == (0..pass.rows()) && holds(device));
        if let Some((device, spans)) = span {
            let nodes: Vec<Node> = nodes.clone().collect();
            let macs = rows.len() as u64 * nodes.iter().map(|&node| self.macs(node)).sum::<u64>();
            let run = model.run_span_on(spans, pass, &nodes, site.crew);
            // What it has no room for, node by node it may.
            let refused = matches!(run, Err(NotRun::Unsupported(_)));
            if !refused && device.ended(macs, run)? == Ended::Done {
                return Ok(Ran::ToItsEnd);
            }
        }
        let may_leave = site.on_miss == OnMiss::GivesBack && self.devices.is_empty();
        for (done, node) in nodes.enumerate() {
            if may_leave && matches!(node, Node::Ffn { .. }) {
                let came = model.run_node_or_leave(pass, node, rows.clone(), site.crew).map_err(unread)?;
                if let Came::ToMissing(about) = came {
                    return Ok(Ran::ToMissing { done, about });
                }
                self.cores.did(model.rows_of(pass, node, rows.clone()).len() as u64 * self.macs(node));
            } else {
                self.run_node(model, pass, node, rows.clone(), site)?;
            }
        }
        Ok(Ran::ToItsEnd)
    }

    /// Runs a node on some rows of a pass, those that anybody reads. Whoever takes some begins, the cores last, since they
    /// compute at once; then what is under way ends, and the crew stands in for who did not do it.
    pub(crate) fn run_node(
        &self,
        model: &Model,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let rows = model.rows_of(pass, node, rows);
        if rows.is_empty() {
            return Ok(());
        }
        match node {
            Node::Route { .. } | Node::Experts { .. } => return self.run_experts(model, pass, node, site),
            Node::Attention { layer } if rows == (0..pass.rows()) && self.attends(model, pass, layer, site)? => {
                return Ok(());
            }
            _ => {}
        }
        let task = Task { model, node, site };
        let macs = |rows: &Range<usize>| rows.len() as u64 * self.macs(node);
        // The cores are never under way, so that a node on cores alone allocates nothing.
        let mut under_way = Vec::new();
        for (executor, rows) in self.takers(node, rows, site) {
            match executor.begin(task, pass, rows.clone()).transpose() {
                Some(begun) => under_way.push((executor, rows, begun)),
                None => {
                    executor.ended(macs(&rows), Ok(()))?;
                }
            }
        }
        for (executor, rows, begun) in under_way {
            let ended = begun.and_then(|begun| task.finish(begun, pass, rows.clone()));
            if executor.ended(macs(&rows), ended)? == Ended::NotDone {
                self.cores.did(macs(&rows));
                model.try_run_node(pass, node, rows, site.crew).map_err(unread)?;
            }
        }
        Ok(())
    }

    /// Who takes which rows of a node: devices take token-wise nodes, as the scheduler said, and the cores what is left.
    fn takers<'a>(
        &'a self,
        node: Node,
        rows: Range<usize>,
        site: Site<'a>,
    ) -> impl Iterator<Item = (&'a dyn Executor, Range<usize>)> {
        let (mut left, mut devices) =
            (rows, self.usable(site).filter(move |device| node.is_token_wise() && device.holds(node)));
        std::iter::from_fn(move || {
            let takes = |device: &'a DeviceLane| match site.rows_of(device.lane, node, left.len()) {
                0 => None,
                count => Some((device as &dyn Executor, count)),
            };
            let (executor, count) = devices.find_map(takes).unwrap_or((&self.cores, left.len()));
            let theirs = left.start..left.start + count;
            left.start = theirs.end;
            (!theirs.is_empty()).then_some((executor, theirs))
        })
    }

    /// Whether a kernel of these nodes' last needs no pass: the rows are read once, and a device alone computes them.
    pub(crate) fn runs_apart(&self, node: Node, site: Site<'_>) -> bool {
        node.is_token_wise() && site.lanes.len() == 1 && self.usable(site).any(|device| device.holds(node))
    }

    /// Runs some rows of a node on the device of the site. Nothing if it did not run them.
    pub(crate) fn run_apart(
        &self,
        inputs: &NodeInputs,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Option<NodeOutputs>, EngineError> {
        let mut usable = self.usable(site).filter(|device| device.holds(inputs.node()));
        let Some(device) = usable.next() else { return Ok(None) };
        let macs = rows.len() as u64 * self.macs(inputs.node());
        let mut outputs = None;
        let run = inputs.run_on(device.nodes(site), rows).map(|done| outputs = Some(done));
        device.ended(macs, run)?;
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
        if let Some(device) = self.with_head(site)
            && device.ended(macs, model.logits_on(&*device.device.nodes, pass, rows, logits))? == Ended::Done
        {
            return Ok(());
        }
        model.logits(pass, rows, logits, site.crew);
        self.did_by_crew(macs);
        Ok(())
    }

    /// The best logits of some rows of a pass, from the device of a kernel that has no cores, if it brings back no others.
    pub(crate) fn best(
        &self,
        model: &Model,
        pass: &mut Pass,
        rows: &[usize],
        count: usize,
        site: Site<'_>,
    ) -> Result<Option<Vec<BestOfRow>>, EngineError> {
        let Some(device) = self.with_head(site) else { return Ok(None) };
        let found = match model.best_on(&*device.device.nodes, pass, rows, count) {
            Ok(None) => return Ok(None),
            found => found,
        };
        let mut best = None;
        device.ended(rows.len() as u64 * self.work.head.macs, found.map(|found| best = found))?;
        Ok(best)
    }

    /// The device that computes the head for a site: of a kernel that is its alone.
    fn with_head<'a>(&'a self, site: Site<'_>) -> Option<&'a DeviceLane> {
        let has_head = |device: &&DeviceLane| site.lanes.len() == 1 && device.holds_head(self.work.layers);
        self.usable(site).next().filter(has_head)
    }

    /// Tries whether a device that failed works again: it computes a few rows of zeros.
    pub(crate) fn probe(&self, model: &Model, lane: LaneId) -> Result<(), NotRun> {
        let Some(device) = self.lane(lane) else { return Ok(()) };
        let residual = vec![0.0; PROBED_ROWS * model.blueprint().hidden];
        match device.device.nodes.head(&residual, &mut vec![0.0; PROBED_ROWS * model.config().vocabulary]) {
            // One that does not hold the head says so, and so it is there.
            Err(NotRun::Unsupported(_)) if !device.holds_head(model.config().layers) => {}
            probed => probed?,
        }
        device.works();
        Ok(())
    }

    /// Devices among these lanes that failed since this was last asked.
    pub(crate) fn take_failures(&self, lanes: LaneSet) -> LaneSet {
        let failed = |lane: &LaneId| self.lane(*lane).is_some_and(DeviceLane::take_failure);
        lanes.iter().filter(failed).collect()
    }

    /// The crew did linear work of its own.
    pub(crate) fn did_by_crew(&self, macs: u64) {
        self.cores.did(macs);
    }

    /// Begins to count: measuring is over, and what it did is nobody's answer.
    pub(crate) fn count_from_here(&self) {
        self.cores.count_from_here();
        *self.experts_before.lock().unwrap_or_else(PoisonError::into_inner) = self.all_expert_stats();
        *self.attention_before.lock().unwrap_or_else(PoisonError::into_inner) = self.all_attention_stats();
        self.devices.iter().for_each(DeviceLane::count_from_here);
    }

    /// Where linear work was done so far.
    pub(crate) fn linear_work(&self) -> LinearWork {
        let devices = self.devices.iter().map(DeviceLane::work).collect();
        LinearWork { devices, on_crew: self.cores.work() }
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

    /// The device of a kernel that is its alone, if it runs spans.
    fn spanning<'a>(&'a self, site: Site<'_>) -> Option<(&'a DeviceLane, &'a dyn SpanWise)> {
        let device = self.usable(site).next().filter(|_| site.lanes.len() == 1)?;
        Some((device, device.device.spans.as_deref()?))
    }

    /// The devices of a site that may be asked.
    fn usable<'a>(&'a self, site: Site<'_>) -> impl Iterator<Item = &'a DeviceLane> + use<'a> {
        let lanes = site.lanes;
        self.devices.iter().filter(move |device| lanes.contains(device.lane) && device.is_usable())
    }
}

/// Weights on disk that cannot be read end the requests that need them.
fn unread(error: ExpertUnread) -> EngineError {
    EngineError::Weights(error.to_string())
}

/// A handful: a probe is short.
const PROBED_ROWS: usize = 4;

#[cfg(test)]
#[path = "../../model/tests/float_attention/mod.rs"]
mod float_attention;

#[cfg(test)]
#[path = "../../model/tests/float_device/mod.rs"]
mod float_device;

#[cfg(test)]
#[path = "executors/tests.rs"]
mod tests;
