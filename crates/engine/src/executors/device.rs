//! A device as an executor: what it computes, how it is, and what it has done.

use super::Site;
use crate::exchange::GraphExchange;
use duet_model::forward::{PreparesRows, TokenWise};
use duet_scheduler::machine::RowsTaken;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A device with a model's nodes, which an engine gives a lane of its own.
#[derive(Clone, Debug)]
pub struct Device {
    /// What it is called in timelines and figures, `openvino:NPU` for example. No two of an engine have one name.
    pub name: String,
    /// Its driver and version, so that a profile of another one is not taken for this one's.
    pub version: String,
    /// The model on it.
    pub nodes: Arc<dyn TokenWise>,
    /// Rows of a kernel that it takes.
    pub rows: RowsTaken,
    /// Whether it computes on the cores that the crew computes on.
    pub silicon: Silicon,
    /// How its graphs are exchanged, if it has no room for all of them.
    pub exchange: Option<GraphExchange>,
}

/// What a device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silicon {
    /// Its own.
    Own,
    /// The cores: while it computes, they cannot.
    Cores,
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
    /// What a profile calls it: measurements of another driver, or of other shapes, say nothing of it.
    pub(crate) fn identity(&self) -> String {
        let rows = match self.rows {
            RowsTaken::Any => "any",
            RowsTaken::Chunk => "chunks",
        };
        format!("{} {} {rows}", self.name, self.version)
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
    pub(super) device: Device,
    macs: AtomicU64,
    refused: AtomicU64,
    /// It failed, and no probe has come to a good end since.
    failed: AtomicBool,
    /// The scheduler has not heard of that.
    untold: AtomicBool,
}

impl DeviceLane {
    pub(super) fn new(device: Device) -> Self {
        let [macs, refused] = Default::default();
        let [failed, untold] = Default::default();
        Self { device, macs, refused, failed, untold }
    }

    /// Its nodes for what runs at a site: those that were made for exactly its rows, if there are any.
    pub(super) fn nodes<'a>(&'a self, site: Site<'a>) -> &'a dyn TokenWise {
        site.exact.unwrap_or(&*self.device.nodes)
    }

    /// What makes graphs for exactly a prompt's rows, where it takes fixed numbers of rows.
    pub(super) fn prepares(&self) -> Option<Arc<dyn PreparesRows>> {
        (self.device.rows == RowsTaken::Chunk).then(|| Arc::clone(&self.device.nodes).prepares()).flatten()
    }

    pub(super) fn did(&self, macs: u64) {
        self.macs.fetch_add(macs, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.untold.store(true, Ordering::Relaxed);
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
