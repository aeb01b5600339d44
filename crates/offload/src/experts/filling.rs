//! Compiling a model with experts: projections, the head, and every group, if the cache can keep them all. If it cannot, one
//! would put the other out before it is loaded, so that each is compiled when it is.

use super::blocks::{BlockMaker, DenseBlocks};
use super::making::GroupMaker;
use super::plan::{self, LayerPlan, Plan};
use super::settings::{ExpertScheme, ExpertSettings, Launched};
use super::shelf::{Kept, Shelf, Sources};
use super::{Layer, PlaceWork, PlacedExperts, times};
use crate::known_ranges::{KnownRanges, Place};
use crate::layers::{LayersError, head_block};
use crate::placed::{OffloadError, PlacedProgress, Target};
use crate::ready::{ReadyGraph, Widths};
use crate::room::compiled;
use crate::shapes::Shapes;
use crate::slot::Slot;
use crate::source::Source;
use duet_graphs::{Block, Ranges, Rows};
use duet_model::{Model, PlainExperts};
use duet_moe::{Calibration, ExpertId, Group, LayerCounts, MoeShape, Times};
use duet_runtimes::{BlobCache, GraphDevice, GraphSource};
use duet_types::{Bytes, Nanos, Tokens};
use std::sync::{Arc, Mutex};

/// See [`PlacedExperts::ready_on`].
pub(super) fn filled(
    model: &Arc<Model>,
    (device, cache): (Arc<dyn GraphDevice>, BlobCache),
    counts: Option<&Calibration>,
    settings: ExpertSettings,
    progress: &mut dyn FnMut(PlacedProgress),
) -> Result<PlacedExperts, OffloadError> {
    let experts = model.blueprint().experts.ok_or(OffloadError::Dense)?;
    if model.blueprint().dense_layers > 0 {
        return Err(OffloadError::DenseLayers);
    }
    let total = model.config().layers + 1;
    let target = Target { model: &model.config().name, device: &*device, cache: Some(&cache) };
    let ranges = KnownRanges::of(model, &*device, Some(&cache));
    let filler = Filler { maker: BlockMaker { model, rule: device.rules().weights }, target, ranges: &ranges };
    let shape = shape(&filler, &settings)?;
    let times = filler.times(&shape, &settings)?;
    let on = plan::device(&device.rules(), &settings, times);
    let plan = Plan::of(model, counts, settings.provision(), (shape, on));
    let ahead = Ahead::of(&plan, cache.limit());
    let mut filled = Filled::default();
    for (layer, groups) in plan.layers.iter().enumerate() {
        filler.layer(layer, (groups, ahead), &mut filled)?;
        progress(PlacedProgress { done: layer + 1, total });
    }
    let head = filled.qkv.is_some().then(|| filler.head()).transpose()?;
    ranges.keep();
    progress(PlacedProgress { done: total, total });
    let work = model.work().experts.ok_or(OffloadError::Dense)?;
    let launches = plan.most_groups() + usize::from(experts.shared.is_some());
    let work = PlaceWork {
        expert: work.expert,
        shared: work.shared,
        experts: experts.count,
        hidden: model.blueprint().hidden,
        // There is one at least: what the CPU computes comes with the first.
        launches: launches.max(1),
    };
    let Filled { qkv, output, shared, kept, layers } = filled;
    let resident = resident_plan(plan, &settings);
    let maker = GroupMaker { model: Arc::clone(model), device: Arc::clone(&device), cache: cache.clone() };
    let sources = Sources { device: Arc::clone(&device), cache, maker: Box::new(maker) };
    let shelf = Shelf::new(&resident, kept, sources).map_err(duet_runtimes::Error::Thread)?;
    let stats = Mutex::default();
    let dispatched = Mutex::default();
    Ok(PlacedExperts { qkv, output, head, shared, shelf, layers, shape, times, settings, work, stats, dispatched })
}

/// Which groups are compiled when the model is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    All,
    None,
}

impl Ahead {
    /// All, if a cache of this size keeps them.
    fn of(plan: &Plan, limit: Bytes) -> Self {
        let groups = plan.layers.iter().flat_map(|layer| &layer.groups);
        let all: Bytes = groups.map(|group| compiled(group.bytes(plan.shape.expert_bytes))).sum();
        if all <= limit { Self::All } else { Self::None }
    }
}

/// What is compiled so far.
#[derive(Default)]
struct Filled {
    qkv: Option<Vec<Slot>>,
    output: Vec<Slot>,
    shared: Vec<Slot>,
    kept: Vec<Kept>,
    layers: Vec<Layer>,
}

/// A group's experts as a block, and its ranges if the device wants any.
pub(super) struct GroupBlock {
    pub(super) block: Block,
    pub(super) ranges: Option<Ranges>,
}

struct Filler<'a> {
    maker: BlockMaker<'a>,
    target: Target<'a>,
    ranges: &'a KnownRanges<'a>,
}

impl Filler<'_> {
    fn times(&self, shape: &MoeShape, settings: &ExpertSettings) -> Result<Times, OffloadError> {
        if settings.scheme == ExpertScheme::DenseOnly {
            return Ok(times::NOTHING);
        }
        let rules = self.target.device.rules();
        let experts = self.maker.model.blueprint().experts.map_or(1, |plan| plan.count);
        let group = settings.group_size().min(experts);
        let experts: Vec<ExpertId> = (0..group as u32).map(ExpertId).collect();
        let read = self.maker.model.read_experts(0, |plain| self.group_block(&plain, 0, &experts));
        let Some(group) = read.map_err(LayersError::from)?.transpose()? else { return Ok(times::NOTHING) };
        times::measure(self.maker.model, &self.target, shape, (&group, plan::tile(&rules), settings.threads))
    }

    fn layer(&self, layer: usize, (plan, ahead): (&LayerPlan, Ahead), filled: &mut Filled) -> Result<(), OffloadError> {
        filled.layers.push(Layer { first_group: filled.kept.len() as u32 });
        let read = self.maker.model.read_experts(layer, |plain| self.add(&plain, (layer, plan, ahead), filled));
        read.map_err(LayersError::from)?.ok_or(OffloadError::Dense)?
    }

    fn add(
        &self,
        plain: &PlainExperts<'_>,
        (layer, plan, ahead): (usize, &LayerPlan, Ahead),
        filled: &mut Filled,
    ) -> Result<(), OffloadError> {
        let DenseBlocks { qkv, output, shared } = self.maker.dense(plain)?;
        if let Some(block) = qkv {
            filled.qkv.get_or_insert_default().push(self.slot(&block, Place::Qkv(layer))?);
        }
        filled.output.push(self.slot(&output, Place::Output(layer))?);
        if let Some(block) = shared {
            filled.shared.push(self.slot(&block, Place::Shared(layer))?);
        }
        for group in &plan.groups {
            filled.kept.push(self.group(plain, (layer, ahead), group)?);
        }
        Ok(())
    }

    /// A block that all rows go through: one graph for any number where the device takes that, else one for a chunk and one
    /// for few rows.
    fn slot(&self, block: &Block, place: Place) -> Result<Slot, OffloadError> {
        let ranges = self.ranges.get(place, block)?;
        Slot::ready(&self.target, block, ranges.as_ref(), &Shapes::of(self.target.device.rules().rows))
    }

    fn head(&self) -> Result<Slot, OffloadError> {
        self.slot(&head_block(self.maker.model, self.maker.rule)?, Place::Head)
    }

    fn group_block(
        &self,
        plain: &PlainExperts<'_>,
        layer: usize,
        experts: &[ExpertId],
    ) -> Result<GroupBlock, OffloadError> {
        let block = self.maker.group(plain, experts)?;
        let one = |expert| Ok(self.maker.group(plain, &[expert])?);
        let ranges = self.ranges.of_experts(layer, experts, &block, &one)?;
        Ok(GroupBlock { block, ranges })
    }

    /// A group; if it is compiled ahead, it is tried and left in the cache.
    fn group(
        &self,
        plain: &PlainExperts<'_>,
        (layer, ahead): (usize, Ahead),
        group: &Group,
    ) -> Result<Kept, OffloadError> {
        let GroupBlock { block, ranges } = self.group_block(plain, layer, &group.experts)?;
        let rows = Rows::Static(group.capacity);
        let source = Source::of(&self.target, &GraphSource { block: &block, rows, ranges: ranges.as_ref() })?;
        let (key, widths) = (source.key(&self.target), Widths::of(&block));
        let patience = match ahead {
            Ahead::All => Some(ReadyGraph::tried(source.obtain(&self.target)?, &widths, rows)?.patience()),
            Ahead::None => None,
        };
        Ok(Kept { layer, group: group.clone(), ranges, widths, patience, key })
    }
}

/// The experts' shape; their bytes are those of an emitted block.
fn shape(filler: &Filler<'_>, settings: &ExpertSettings) -> Result<MoeShape, OffloadError> {
    let model = filler.maker.model;
    let one = model.read_experts(0, |plain| filler.maker.group(&plain, &[ExpertId(0)]));
    let block = one.map_err(LayersError::from)?.ok_or(OffloadError::Dense)??;
    let chosen = model.blueprint().experts.map_or(1, |plan| plan.chosen) as u32;
    let chunk = settings.chunk.max(Tokens(1));
    Ok(MoeShape { chunk, chosen, expert_bytes: Bytes(block.constant_bytes().0.max(1)) })
}

/// What residency goes by: where all groups are launched, all are worth it.
fn resident_plan(plan: Plan, settings: &ExpertSettings) -> Plan {
    if settings.launched() == Launched::IfWorthIt {
        return plan;
    }
    let times = Times { cpu_row: Nanos(1), cpu_weights: Nanos(1), ..times::NOTHING };
    let even = |layer: LayerPlan| LayerPlan { counts: LayerCounts::none(layer.counts.loads().len()), ..layer };
    let device = duet_moe::Device { times, ..plan.device };
    Plan { device, layers: plan.layers.into_iter().map(even).collect(), ..plan }
}
