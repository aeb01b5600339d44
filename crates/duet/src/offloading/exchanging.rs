//! Placing a model on a device that has no room for both graphs of its blocks: which they are is the profile's to say.

use super::{DeviceName, cache, told};
use crate::failure::graph_profile_error;
use crate::models;
use crate::progress::Progress;
use duet_engine::{ExchangesGraphs, GraphExchange};
use duet_model::Model;
use duet_model::forward::{NotRun, TokenWise};
use duet_offload::GraphUse;
use duet_offload::switching::{Demand, GraphBudget, GraphProfile, Placement, ResidentModel, Shelf};
use duet_runtimes::GraphDevice;
use duet_scheduler::GraphLoad;
use duet_scheduler::progressive::Role;
use duet_types::Bytes;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// How a model is on a device within some memory.
pub(super) enum Placed {
    /// With one graph of each block, exchanged while prompts are read.
    Exchanging(Arc<dyn TokenWise>, GraphExchange),
    /// There is room for both.
    Whole,
}

/// The model, as the scheduler sees what loads its graphs.
#[derive(Debug)]
struct Serving(Arc<ResidentModel>);

impl ExchangesGraphs for Serving {
    fn load(&self, load: GraphLoad) -> Result<(), NotRun> {
        self.0.load(load).map_err(|error| NotRun::Failed(error.to_string()))
    }
}

/// Chooses blocks and shapes for this memory (and keeps graphs within `asked` of disk, if that is said), by the device's profile, which is measured if there is none, and loads the
/// graphs that prompts are read on.
pub(super) fn placed(
    model: &Arc<Model>,
    name: &DeviceName,
    device: Arc<dyn GraphDevice>,
    (budget, asked): (Bytes, Option<Bytes>),
) -> anyhow::Result<Placed> {
    let cache = cache(model, &*device, asked, GraphUse::Exchanged)?;
    let placement = Placement { device, cache };
    let profile = profile(model, name, &placement, budget)?;
    let (blocks, chosen) = (profile.blocks(), profile.candidate());
    if blocks.bytes(Role::Prefill) + blocks.bytes(Role::Decode) <= budget {
        return Ok(Placed::Whole);
    }
    let count = NonZeroUsize::new(chosen.blocks).unwrap_or(NonZeroUsize::MIN);
    let shapes = [chosen.rows.decode, chosen.rows.prefill];
    let resident = told(name, || {
        let shelf = Shelf::fill(model, placement, count, &shapes, &mut |_| {})?;
        ResidentModel::prefilling(shelf, chosen.rows)
    })?;
    let resident = Arc::new(resident);
    let device = Arc::new(Serving(Arc::clone(&resident)));
    Ok(Placed::Exchanging(resident, GraphExchange { device, blocks, budget }))
}

fn profile(
    model: &Arc<Model>,
    name: &DeviceName,
    placement: &Placement,
    budget: Bytes,
) -> anyhow::Result<GraphProfile> {
    let demand = Demand::mixed(model.config().context, GraphBudget::Bytes(budget));
    let progress = Progress::spinner("profiling", &format!("graphs for {name}"));
    let folder = models::cache_folder("profiles").ok();
    let profile = GraphProfile::load_or_measure(folder.as_deref(), model, placement, demand, &mut |_| {});
    let profile = profile.map_err(|error| graph_profile_error(error).context(name.to_string()))?;
    progress.finish("profiled");
    Ok(profile)
}
