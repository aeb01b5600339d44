//! A model's experts on a device that takes static shapes, as NPUMoE has them.
//!
//! Projections and the head are graphs as those of a dense model. Routing is the CPU's; then each group of experts with
//! rows to amortise it is a launch of its own, in capacities and groups that `duet-moe` plans from calibrated counts.
//! What has no room, or no graph on the device, the CPU's kernels compute, to their own bits. Which groups are on the
//! device follows traffic.
//!
//! | mechanism | file |
//! | --- | --- |
//! | the schemes that are compared | `settings.rs` |
//! | capacities and groups of all layers (§4.1, §4.2) | `plan.rs` |
//! | blocks of the file's weights | `blocks.rs` |
//! | what a launch and a slot take, and a row on the CPU (§4.3) | `times.rs`, `cpu_times.rs` |
//! | compiling all of it | `filling.rs` |
//! | which groups are on the device, as traffic goes (§4.3) | `shelf.rs` |
//! | a group's graph that the cache does not have | `making.rs` |
//! | who computes which expert of a row (§3.1, §3.2) | `dispatching.rs` |
//! | gather, launch, scatter (§4.2) | `group_graph.rs` |
//! | the same dispatching without a device | `virtual_experts.rs` |

mod blocks;
mod cpu_times;
mod dispatching;
mod filling;
mod group_graph;
mod making;
mod plan;
mod settings;
mod shelf;
mod times;
mod virtual_experts;

pub(crate) use blocks::dense_bytes;
pub use blocks::expert_block;
pub use settings::{ExpertScheme, ExpertSettings, Saliency};
pub use virtual_experts::{VirtualExperts, VirtualSettings};

use crate::placed::{OffloadError, PlacedProgress, slot};
use crate::slot::{Slot, Started};
use dispatching::{Routes, packing};
use duet_model::Model;
use duet_model::forward::{
    Begun, BegunLaunch, ExpertStats, ExpertWise, Fate, FateCounts, NotRun, RoutedRows, TokenWise,
};
use duet_moe::{Calibration, Dispatched, MoeShape, Times};
use duet_runtimes::{BlobCache, GraphDevice};
use group_graph::Launch;
use settings::Launched;
use shelf::{Loads, Shelf};
use std::sync::{Arc, Mutex, PoisonError};

/// A model on a device, its experts in groups.
#[derive(Debug)]
pub struct PlacedExperts {
    /// Absent where the CPU norms and projects.
    qkv: Option<Vec<Slot>>,
    output: Vec<Slot>,
    head: Option<Slot>,
    /// The expert that all rows go to, of each layer: the first launch.
    shared: Vec<Slot>,
    shelf: Shelf,
    layers: Vec<Layer>,
    shape: MoeShape,
    times: Times,
    settings: ExpertSettings,
    work: PlaceWork,
    stats: Mutex<ExpertStats>,
    /// The experts' that rows are routed to.
    dispatched: Mutex<Dispatched>,
}

/// Where a layer's groups are among all.
#[derive(Clone, Copy, Debug)]
struct Layer {
    first_group: u32,
}

/// Multiply-accumulates of a place.
#[derive(Clone, Copy, Debug)]
struct PlaceWork {
    expert: u64,
    shared: u64,
    experts: usize,
    hidden: usize,
    launches: usize,
}

impl PlacedExperts {
    /// Makes a model ready on a device. Without counts all experts are taken as equally busy. If the cache has no room for all
    /// groups, each is compiled when it is brought to the device and is not there.
    ///
    /// # Errors
    /// If the model has no experts, or the device does not take them.
    pub fn ready_on(
        model: &Arc<Model>,
        (device, cache): (Arc<dyn GraphDevice>, BlobCache),
        counts: Option<&Calibration>,
        settings: ExpertSettings,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        filling::filled(model, (device, cache), counts, settings, progress)
    }

    /// What a launch, a slot and a row take, as measured.
    #[must_use]
    pub fn times(&self) -> Times {
        self.times
    }

    /// What became of routes so far; rows of the expert that all go to are none.
    #[must_use]
    pub fn dispatched(&self) -> Dispatched {
        *self.dispatched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches before those of groups.
    fn shared_launches(&self) -> usize {
        usize::from(!self.shared.is_empty())
    }

    fn count(&self, fates: &[Fate], launches: u64, slots: u64) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.places += FateCounts::of(fates);
        stats.launches += launches;
        stats.slots += slots;
    }
}

impl TokenWise for PlacedExperts {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        slot(self.qkv.as_deref().ok_or_else(biased)?, layer)?.run(&[residual], qkv)
    }

    fn feed_forward(&self, _: usize, _: &[f32], _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported("experts are launched one group after the other".to_owned()))
    }

    fn begin_qkv(&self, layer: usize, residual: &[f32], len: usize) -> Result<Box<dyn Begun + '_>, NotRun> {
        Ok(Box::new(slot(self.qkv.as_deref().ok_or_else(biased)?, layer)?.begin(&[residual], len)?))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.head.as_ref().ok_or_else(biased)?.run(&[residual], logits)
    }
}

impl ExpertWise for PlacedExperts {
    fn launches(&self) -> usize {
        self.work.launches
    }

    fn stats(&self) -> ExpertStats {
        let Loads { done: loads, failed: failed_loads, resident } = self.shelf.loads();
        ExpertStats { loads, failed_loads, resident, ..*self.stats.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    fn place_macs(&self, launch: usize) -> u64 {
        if launch < self.shared_launches() { self.work.shared } else { self.work.expert }
    }

    fn project(&self, layer: usize, attended: &[f32], residual: &[f32], out: &mut [f32]) -> Result<(), NotRun> {
        slot(&self.output, layer)?.run(&[attended, residual], out)
    }

    fn dispatch(&self, layer: usize, rows: &RoutedRows<'_>) -> Vec<Fate> {
        let mut fates = vec![Fate::Crew; rows.experts.len()];
        let Some(Layer { first_group }) = self.layers.get(layer).copied() else { return fates };
        let (shared, overflow) = (self.shared_launches(), self.settings.overflow);
        let (mut launches, mut slots) = (0, 0);
        if let Some(shared) = self.shared.get(layer)
            && rows.experts.len() / rows.places > FEW_ROWS
        {
            fates.iter_mut().skip(rows.places - 1).step_by(rows.places).for_each(|fate| *fate = Fate::Launch(0));
            (launches, slots) = (1, shared.padded(rows.experts.len() / rows.places) as u64);
        }
        let routes = Routes::of(rows, self.work.experts, self.settings.saliency());
        let hot = self.shelf.routed(layer, routes.counts.clone());
        let few = self.settings.launched() == Launched::All && rows.experts.len() / rows.places <= FEW_ROWS;
        let worth = |group| !few && routes.amortise(group, (&self.shape, &self.times), self.settings.launched());
        let groups = hot.iter().filter(|(_, group)| worth(group));
        let groups: Vec<_> = groups.map(|(id, group)| ((id.0 - first_group) as usize + shared, group)).collect();
        let counts = routes.divide(&groups, overflow, rows, &mut fates);
        *self.dispatched.lock().unwrap_or_else(PoisonError::into_inner) += counts;
        (launches, slots) = (launches + counts.launches, slots + counts.slots);
        self.count(&fates, launches, slots);
        fates
    }

    fn begin(
        &self,
        layer: usize,
        launch: usize,
        rows: &RoutedRows<'_>,
        fates: &[Fate],
    ) -> Result<Box<dyn BegunLaunch + '_>, NotRun> {
        let Some(group) = launch.checked_sub(self.shared_launches()) else {
            let started = slot(&self.shared, layer)?.begin(&[rows.normed], rows.normed.len())?;
            return Ok(Box::new(SharedLaunch { started, hidden: self.work.hidden }));
        };
        let first = self.layers.get(layer).ok_or_else(gone)?.first_group;
        let id = duet_moe::GroupId(first + group as u32);
        let (group, mut graph) = self.shelf.graph(id).ok_or_else(gone)?;
        let packing = packing(group, launch, rows, fates);
        graph.as_mut().ok_or_else(gone)?.start(&packing, rows.normed)?;
        Ok(Box::new(Launch { graph, packing, hidden: self.work.hidden }))
    }
}

/// The expert that all rows go to, under way.
struct SharedLaunch<'a> {
    started: Started<'a>,
    hidden: usize,
}

impl BegunLaunch for SharedLaunch<'_> {
    fn finish(self: Box<Self>, rows: &mut RoutedRows<'_>) -> Result<(), NotRun> {
        let mut results = vec![0.0; rows.residual.len()];
        Box::new(self.started).finish(&mut results)?;
        let weights = rows.weights.iter().skip(rows.places - 1).step_by(rows.places);
        let rows = rows.residual.chunks_exact_mut(self.hidden).zip(results.chunks_exact(self.hidden));
        for ((row, result), weight) in rows.zip(weights) {
            row.iter_mut().zip(result).for_each(|(sum, result)| *sum += weight * result);
        }
        Ok(())
    }
}

fn gone() -> NotRun {
    NotRun::Unsupported("the group's graph is not on the device any more".to_owned())
}

fn biased() -> NotRun {
    NotRun::Unsupported("norms with biases are the CPU's".to_owned())
}

/// Rows that are decoded, not read: the CPU has their experts' weights as near.
const FEW_ROWS: usize = 16;
