//! The graphs of all groups: which are on the device, and how others come to it.
//!
//! Where the cache has room for all groups, they were compiled when the model was placed. A thread of its own brings those to
//! the device that traffic makes worth it, and takes others from it, as [`Residency`] asks. What the cache does not have, for
//! want of room or because somebody emptied it, that thread compiles: nothing is compiled in a request's way, and no request
//! waits for a graph. (NPUMoE §4.3)
//!
//! Invariants:
//! - a graph is taken away under its own lock, so never while a launch runs on it;
//! - whatever the cache holds, every group can be brought to the device.

use super::group_graph::GroupGraph;
use super::plan::Plan;
use crate::patience::Patience;
use crate::placed::OffloadError;
use crate::ready::{ReadyGraph, Widths};
use duet_graphs::{Ranges, Rows};
use duet_moe::residency::{Command, Event};
use duet_moe::{Group, GroupId, LayerCounts, Residency};
use duet_runtimes::{BlobCache, BlobKey, Graph, GraphDevice};
use duet_types::Bytes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A group of a layer, which can be compiled at any time.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) layer: usize,
    pub(super) group: Group,
    /// For devices that compute in integers.
    pub(super) ranges: Option<Ranges>,
    pub(super) widths: Widths,
    /// As it was tried when the model was placed; one that was not is tried whenever it is loaded.
    pub(super) patience: Option<Patience>,
    pub(super) key: BlobKey,
}

/// Compiles a group.
pub(super) trait MakesGroups: std::fmt::Debug + Send + Sync {
    /// The group's graph, which the cache has again if it has room.
    ///
    /// # Errors
    /// If the device does not compile it.
    fn make(&self, kept: &Kept) -> Result<Box<dyn Graph>, OffloadError>;
}

/// What graphs run on, where they are kept, and who makes those again that are not there any more.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) device: Arc<dyn GraphDevice>,
    pub(super) cache: BlobCache,
    pub(super) maker: Box<dyn MakesGroups>,
}

/// Graphs that were brought to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loads {
    /// Since the beginning, which had its own.
    pub(super) done: u64,
    /// Those that failed, each try counted.
    pub(super) failed: u64,
    /// What those there take.
    pub(super) resident: Bytes,
}

/// All groups, and the thread that brings them.
#[derive(Debug)]
pub(super) struct Shelf {
    held: Arc<Held>,
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has in common with launches.
#[derive(Debug)]
struct Held {
    groups: Vec<Place>,
    residency: Mutex<Residency>,
    sources: Sources,
    loads: AtomicU64,
    /// Loads that failed: those at the beginning as well, since they are tried again.
    failed: AtomicU64,
    /// Nobody wants graphs any more.
    closing: AtomicBool,
}

#[derive(Debug)]
struct Place {
    kept: Kept,
    graph: Mutex<Option<GroupGraph>>,
}

impl Shelf {
    /// Groups of all layers, the first layer's first, and what the plan makes worth it on the device.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn new(plan: &Plan, kept: Vec<Kept>, sources: Sources) -> std::io::Result<Self> {
        let layers = plan.layers.iter().map(|layer| (&layer.counts, layer.groups.clone())).collect();
        let residency = Mutex::new(Residency::new(layers, plan.shape, &plan.device));
        let groups = kept.into_iter().map(|kept| Place { kept, graph: Mutex::new(None) }).collect();
        let (loads, failed) = Default::default();
        let held = Arc::new(Held { groups, residency, sources, loads, failed, closing: AtomicBool::new(false) });
        held.settle();
        held.loads.store(0, Ordering::Relaxed);
        let (commands, orders) = channel();
        let own = Arc::clone(&held);
        let thread = std::thread::Builder::new().name("expert-graphs".to_owned()).spawn(move || own.serve(&orders))?;
        Ok(Self { held, commands: Some(commands), thread: Some(thread) })
    }

    /// A chunk was routed. The layer's groups that are on the device, with their numbers.
    pub(super) fn routed(&self, layer: usize, counts: LayerCounts) -> Vec<(GroupId, Group)> {
        let mut residency = self.held.residency();
        residency.handle(Event::Routed { layer, counts });
        while let Some(command) = residency.poll() {
            // After the thread has gone, nothing changes any more.
            let _ = self.commands.as_ref().map(|commands| commands.send(command));
        }
        residency.hot(layer).map(|(id, group)| (id, group.clone())).collect()
    }

    /// A group, and its graph if it is on the device.
    pub(super) fn graph(&self, id: GroupId) -> Option<(&Group, MutexGuard<'_, Option<GroupGraph>>)> {
        let place = self.held.groups.get(id.0 as usize)?;
        Some((&place.kept.group, lock(&place.graph)))
    }

    /// What was brought to the device, and what those there take.
    pub(super) fn loads(&self) -> Loads {
        let held = &self.held;
        Loads {
            done: held.loads.load(Ordering::Relaxed),
            failed: held.failed.load(Ordering::Relaxed),
            resident: held.residency().taken(),
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        drop(self.commands.take());
        self.held.closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it panicked of is no more to anybody.
            let _ = thread.join();
        }
    }
}

impl Held {
    fn serve(&self, orders: &Receiver<Command>) {
        while let Ok(command) = orders.recv() {
            if self.closes() {
                return;
            }
            self.carry_out(command);
            self.settle();
        }
    }

    /// Carries out what follows from what was carried out.
    fn settle(&self) {
        loop {
            // Not in the loop's condition, where it would be locked while the command is carried out.
            let next = self.residency().poll();
            let Some(command) = next.filter(|_| !self.closes()) else { return };
            self.carry_out(command);
        }
    }

    /// Who drops the model waits for what is being compiled, and not for all that was asked for.
    fn closes(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn carry_out(&self, command: Command) {
        let event = match command {
            Command::Load(id) => match self.groups.get(id.0 as usize).map(|place| self.load(place)) {
                Some(Ok(())) => Event::Loaded(id),
                _ => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    Event::LoadFailed(id)
                }
            },
            Command::Release(id) => {
                if let Some(place) = self.groups.get(id.0 as usize) {
                    drop(lock(&place.graph).take());
                }
                Event::Released(id)
            }
        };
        self.residency().handle(event);
    }

    fn load(&self, Place { kept, graph }: &Place) -> Result<(), OffloadError> {
        let loaded = self.sources.graph(kept)?;
        let ready = match kept.patience {
            Some(patience) => ReadyGraph::like(loaded, patience),
            None => ReadyGraph::tried(loaded, &kept.widths, Rows::Static(kept.group.capacity))?,
        };
        let loaded = GroupGraph::new(ready, kept.widths.clone(), kept.group.capacity.as_usize());
        *lock(graph) = Some(loaded);
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn residency(&self) -> MutexGuard<'_, Residency> {
        lock(&self.residency)
    }
}

impl Sources {
    /// A group's graph from the cache, or else compiled: bytes that are whole may be refused all the same.
    fn graph(&self, kept: &Kept) -> Result<Box<dyn Graph>, OffloadError> {
        let taken_up = self.cache.get(&kept.key).and_then(|blob| self.device.import_graph(&blob).ok());
        taken_up.map_or_else(|| self.maker.make(kept), Ok)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
