//! A device as an executor: what it computes, how it is, and what it has done.

use super::Site;
use super::executor::{Ended, Executor, Task};
use crate::exchange::GraphExchange;
use crate::request::EngineError;
use duet_model::forward::{
    AttentionWise, Begun, ExpertWise, HoldsLayers, Node, NotRun, Pass, PreparesRows, SpanWise, TokenWise,
};
use duet_scheduler::layers::HeldLayers;
use duet_scheduler::machine::{Attention, Capabilities, Experts, Joins, RowsTaken};
use duet_types::{LaneId, Tokens};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A device with a model's nodes, which an engine gives a lane of its own.
#[derive(Clone, Debug)]
pub struct Device {
    /// What it is called in timelines and figures, `openvino:NPU` for example. No two of an engine have one name.
    pub name: String,
    /// Its driver and version, so that a profile of another one is not taken for this one's.
    pub version: String,
    /// The model on it.
    pub nodes: Arc<dyn TokenWise>,
    /// Its experts, if it runs them in launches; it does not run feed-forward kernels whole then.
    pub experts: Option<Arc<dyn ExpertWise>>,
    /// What runs the attention of chunks, if it does.
    pub attention: Option<Arc<dyn AttentionWise>>,
    /// What runs whole spans of nodes, attention over any context among them, if it does.
    pub spans: Option<Arc<dyn SpanWise>>,
    /// What says which layers it holds, if it has no room for all.
    pub layers: Option<Arc<dyn HoldsLayers>>,
    /// Rows of a kernel that it takes.
    pub rows: RowsTaken,
    /// What makes graphs of it for exactly so many rows, if it takes chunks.
    pub prepares: Option<Arc<dyn PreparesRows>>,
    /// How its graphs are exchanged, if it has no room for all of them.
    pub exchange: Option<GraphExchange>,
}

/// What happens to work that a device does not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The crew does it.
    #[default]
    Crew,
    /// Its requests fail with the device's error.
    Never,
}

/// Where linear work was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinearWork {
    /// By each device, in the order of their lanes.
    pub devices: Vec<DeviceWork>,
    /// Multiply-accumulates that cores did.
    pub on_crew: u64,
}

/// What a device did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    /// Its name.
    pub name: String,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Pieces of work that it was given and did not do.
    pub refused: u64,
}

impl Device {
    /// One that runs token-wise nodes of any number of rows, and nothing else.
    #[must_use]
    pub fn new(name: impl Into<String>, version: impl Into<String>, nodes: Arc<dyn TokenWise>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            nodes,
            experts: None,
            attention: None,
            spans: None,
            layers: None,
            rows: RowsTaken::Any,
            prepares: None,
            exchange: None,
        }
    }

    /// What a profile calls it: measurements of another driver, or of other shapes, say nothing of it.
    pub(crate) fn identity(&self) -> String {
        let rows = match self.rows {
            RowsTaken::Any => "any",
            RowsTaken::Chunk => "chunks",
        };
        let attends = if self.attention.is_some() { " attends" } else { "" };
        let spans = if self.spans.is_some() { " spans" } else { "" };
        let room = self.layers.as_ref().map_or_else(String::new, |layers| format!(" {} for weights", layers.room()));
        format!("{} {} {rows}{attends}{spans}{room}", self.name, self.version)
    }
}

impl LinearWork {
    /// Multiply-accumulates that devices did.
    #[must_use]
    pub fn on_devices(&self) -> u64 {
        self.devices.iter().map(|device| device.macs).sum()
    }

    /// The share of some multiply-accumulates; 0 if there were none.
    #[must_use]
    pub fn share(&self, macs: u64) -> f64 {
        macs as f64 / (self.on_devices() + self.on_crew).max(1) as f64
    }

    /// What was done since an earlier time.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.devices.iter().map(Some).chain(std::iter::repeat(None));
        let devices = self.devices.iter().zip(before).map(|(now, before)| DeviceWork {
            name: now.name.clone(),
            macs: now.macs - before.map_or(0, |before| before.macs),
            refused: now.refused - before.map_or(0, |before| before.refused),
        });
        Self { devices: devices.collect(), on_crew: self.on_crew - earlier.on_crew }
    }

    /// Pieces of work that devices did not do.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.devices.iter().map(|device| device.refused).sum()
    }
}

/// A device on its lane.
#[derive(Debug)]
pub(super) struct DeviceLane {
    pub(super) lane: LaneId,
    pub(super) device: Device,
    fallback: Fallback,
    macs: AtomicU64,
    refused: AtomicU64,
    /// It failed, and no probe has come to a good end since.
    failed: AtomicBool,
    /// The scheduler has not heard of that.
    untold: AtomicBool,
    /// The attention that it is given.
    attention: Mutex<Attention>,
}

impl Executor for DeviceLane {
    /// Of attention it has what it was given: none before that was measured, or read from a profile.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            joins: Joins::Rows,
            rows: self.device.rows,
            layers: self.device.layers.as_ref().map(|layers| HeldLayers::new(&layers.held())),
            attention: self.attention(),
            experts: if self.device.experts.is_some() { Experts::Taken } else { Experts::NotTaken },
            graph_memory: self.device.exchange.as_ref().map(|exchange| exchange.budget),
            ..Capabilities::CORES
        }
    }

    fn begin<'e>(
        &'e self,
        task: Task<'e>,
        pass: &mut Pass,
        rows: Range<usize>,
    ) -> Result<Option<Box<dyn Begun + 'e>>, NotRun> {
        task.model.begin_node_on(self.nodes(task.site), pass, task.node, rows).map(Some)
    }

    fn ended(&self, macs: u64, result: Result<(), NotRun>) -> Result<Ended, EngineError> {
        let Err(error) = result else {
            self.macs.fetch_add(macs, Ordering::Relaxed);
            return Ok(Ended::Done);
        };
        let name = &self.device.name;
        self.refused.fetch_add(1, Ordering::Relaxed);
        if self.fallback == Fallback::Never {
            return Err(EngineError::Device { device: name.clone(), error: error.to_string() });
        }
        if matches!(error, NotRun::Failed(_)) {
            self.failed.store(true, Ordering::Relaxed);
            self.untold.store(true, Ordering::Relaxed);
            tracing::warn!("{name} is left alone until it works again, others do its work: {error}");
        }
        Ok(Ended::NotDone)
    }
}

impl DeviceLane {
    pub(super) fn new(lane: LaneId, device: Device, fallback: Fallback) -> Self {
        let [macs, refused] = Default::default();
        let [failed, untold] = Default::default();
        let attention = if device.spans.is_some() { Attention::Any } else { Attention::None };
        Self { lane, device, fallback, macs, refused, failed, untold, attention: Mutex::new(attention) }
    }

    /// The attention that it is given; none until it was measured, and all where it runs spans.
    pub(super) fn attention(&self) -> Attention {
        *self.attention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn give_attention(&self, attention: Attention) {
        *self.attention.lock().unwrap_or_else(PoisonError::into_inner) = attention;
    }

    /// What attends on it for a chunk at these positions, where it is given that. One that has grown too long for it is its
    /// to refuse, so that it hears of that.
    pub(super) fn attends(&self, chunk: &Range<Tokens>) -> Option<&dyn AttentionWise> {
        let attention = self.device.attention.as_deref()?;
        let is_given = match self.attention() {
            Attention::None => false,
            Attention::UpTo(longest) => chunk.end <= longest,
            Attention::Chunks(chunks) => {
                chunks.takes(chunk.end - chunk.start, chunk.end) || chunk.end > attention.chunks().context_max
            }
            Attention::Any => true,
        };
        is_given.then_some(attention)
    }

    /// Its nodes for what runs at a site: those that were made for exactly its rows, if there are any.
    pub(super) fn nodes<'a>(&'a self, site: Site<'a>) -> &'a dyn TokenWise {
        site.exact.unwrap_or(&*self.device.nodes)
    }

    /// What makes graphs for exactly a prompt's rows, where it takes fixed numbers of rows.
    pub(super) fn prepares(&self) -> Option<&Arc<dyn PreparesRows>> {
        self.device.prepares.as_ref().filter(|_| self.device.rows == RowsTaken::Chunk)
    }

    /// Whether it holds a node's layer.
    pub(super) fn holds(&self, node: Node) -> bool {
        let layer = match node {
            Node::Qkv { layer } | Node::Attention { layer } | Node::Ffn { layer } => layer,
            Node::Embed | Node::Route { .. } | Node::Experts { .. } => return true,
        };
        self.device.layers.as_ref().is_none_or(|layers| layers.held().contains(&layer))
    }

    /// Whether it holds the head, which goes with the last of so many layers.
    pub(super) fn holds_head(&self, layers: usize) -> bool {
        self.device.layers.as_ref().is_none_or(|held| held.held().end == layers)
    }

    /// Holds the layers that were planned.
    pub(super) fn hold(&self, planned: HeldLayers) -> Result<(), EngineError> {
        let Some(layers) = self.device.layers.as_ref().filter(|layers| layers.held() != planned.range()) else {
            return Ok(());
        };
        tracing::info!(device = %self.device.name, layers = ?planned.range(), "a device is given other layers");
        self.ended(0, layers.hold(planned.range())).map(|_| ())
    }

    /// Whether it may be asked.
    pub(super) fn is_usable(&self) -> bool {
        self.fallback == Fallback::Never || !self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether it failed since this was last asked.
    pub(super) fn take_failure(&self) -> bool {
        self.untold.swap(false, Ordering::Relaxed)
    }

    pub(super) fn works(&self) {
        self.failed.store(false, Ordering::Relaxed);
    }

    pub(super) fn count_from_here(&self) {
        [&self.macs, &self.refused].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }

    pub(super) fn work(&self) -> DeviceWork {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceWork { name: self.device.name.clone(), macs: count(&self.macs), refused: count(&self.refused) }
    }
}
