//! A chunk in a layer, on both lanes: attention, then the experts. (NPUMoE §3.1, §3.2, Figure 11)
//!
//! Norms, masks, choosing experts, gathering and scattering run on the CPU, one core, whoever computes the rest. Groups are
//! launched in their order, each as soon as its slots are filled; while they run the CPU computes what is its own; results
//! are scattered in the groups' order. The next layer begins when both lanes have ended: it needs every row.

use super::chunks::{Chunk, Launch};
use super::costs::{Costs, Position, Unit};
use super::schemes::{Groups, Scheme};
use super::targets::HALF;
use super::timeline::{Lane, Timeline, Work};
use super::usage::{Macs, Usage};
use duet_types::Nanos;

/// Norm, projections, attention.
pub(super) fn attention(costs: &Costs, scheme: Scheme, at: Position) -> Usage {
    let (unit, sizes) = (scheme.attention(), &costs.sizes);
    let pairs = if unit == Unit::Npu { at.slots() } else { at.seen() };
    let takes = costs.projections(unit, at.rows) + costs.attention(unit, pairs);
    let weights = sizes.projection_macs() * sizes.weight_bytes;
    let cached = f64::from(if unit == Unit::Npu { at.cache } else { at.before + at.rows }) * sizes.position_bytes();
    let norm = costs.norm_bytes(at.rows);
    let mut bytes = weights + cached + 2.0 * f64::from(at.rows) * sizes.row_bytes();
    let asked = f64::from(at.rows) * sizes.projection_macs() + at.seen() * sizes.pair_macs();
    let padding = (pairs - at.seen()) * sizes.pair_macs();
    if unit == Unit::Gpu {
        let gpu = costs.launch(unit) + takes;
        let macs = Macs { elsewhere: asked, ..Macs::default() };
        return Usage { span: gpu, gpu, bytes, macs, ..Usage::default() };
    }
    let mut timeline = Timeline::default();
    let macs = if unit == Unit::Npu {
        // The mask of a static graph is written anew for each chunk.
        let mask = at.slots() * HALF;
        bytes += norm + mask;
        let ready = timeline.run(Lane::Cpu, Work::Rows, Nanos::ZERO, costs.copy(norm + mask));
        let launched = timeline.run(Lane::Npu, Work::Launch, ready, costs.launch(unit));
        timeline.run(Lane::Npu, Work::Graph, launched, takes);
        Macs { npu: asked, padding, ..Macs::default() }
    } else {
        bytes += norm;
        let ready = timeline.run(Lane::Cpu, Work::Rows, Nanos::ZERO, costs.copy(norm));
        timeline.run(Lane::Cpu, Work::Products, ready, costs.launch(unit) + takes);
        Macs { elsewhere: asked, padding, ..Macs::default() }
    };
    Usage::of(&timeline, bytes, macs)
}

/// Norm, choosing experts, and what they compute.
pub(super) fn experts(costs: &Costs, scheme: Scheme, groups: Groups, chunk: &Chunk) -> Usage {
    if scheme == Scheme::Gpu {
        return on_gpu(costs, chunk);
    }
    let mut stage = Stage { costs, timeline: Timeline::default(), bytes: 0.0, macs: Macs::default() };
    let routed = stage.route(chunk.rows);
    let mut places = places(groups, chunk.launches.len());
    let (on_npu, on_cpu): (Vec<_>, Vec<_>) = chunk.launches.iter().partition(|_| places.next() == Some(Unit::Npu));
    let launched: Vec<(Launch, Nanos)> =
        on_npu.into_iter().map(|&launch| (launch, stage.launch(launch, routed, groups))).collect();
    for launch in on_cpu {
        stage.padded_on_cpu(*launch, routed);
    }
    for &rows in &chunk.on_cpu {
        stage.on_cpu(rows, rows, 1, routed);
    }
    for (launch, ended) in launched {
        stage.scatter(launch.filled, ended);
    }
    stage.macs.dropped += f64::from(chunk.dropped) * costs.sizes.expert_macs();
    Usage::of(&stage.timeline, stage.bytes, stage.macs)
}

/// Where each of `count` groups is computed: those that fall back lie evenly among the others.
fn places(groups: Groups, count: usize) -> impl Iterator<Item = Unit> {
    let fallback = match groups {
        Groups::Npu => 0.0,
        Groups::Naive { fallback, .. } => fallback,
        Groups::Cpu => 1.0,
    };
    let fallen = move |index: usize| (index as f64 * fallback) as usize;
    (0..count).map(move |index| if fallen(index + 1) > fallen(index) { Unit::Cpu } else { Unit::Npu })
}

/// The experts of a chunk, as far as they are asked for.
struct Stage<'a> {
    costs: &'a Costs,
    timeline: Timeline,
    bytes: f64,
    macs: Macs,
}

impl Stage<'_> {
    /// Norm, scores, choice.
    fn route(&mut self, rows: u32) -> Nanos {
        let (norm, choice) = (self.costs.norm_bytes(rows), self.costs.choice_bytes(rows));
        let normed = self.copy(Work::Rows, norm, Nanos::ZERO);
        let scored = self.timeline.run(Lane::Cpu, Work::Products, normed, self.costs.scores(Unit::Cpu, rows));
        self.copy(Work::Rows, choice, scored)
    }

    /// A graph, as soon as its slots are filled; says when it has ended.
    fn launch(&mut self, launch: Launch, after: Nanos, groups: Groups) -> Nanos {
        let gathered = self.copy(Work::Gather, self.costs.gather_bytes(launch.filled, launch.slots()), after);
        let graph = self.costs.experts(Unit::Npu, launch.experts, launch.capacity);
        let mut waits = self.costs.launch(Unit::Npu);
        if let Groups::Naive { dispatch, .. } = groups {
            waits = waits.max(Nanos((graph.0 as f64 * dispatch / (1.0 - dispatch)) as u64));
        }
        let launched = self.timeline.run(Lane::Npu, Work::Launch, gathered, waits);
        self.moved(launch.experts, launch.slots());
        let macs = self.costs.sizes.expert_macs();
        self.macs.npu += f64::from(launch.filled) * macs;
        self.macs.padding += f64::from(launch.slots() - launch.filled) * macs;
        self.timeline.run(Lane::Npu, Work::Graph, launched, graph)
    }

    /// A group's graph on the CPU, with its padding.
    fn padded_on_cpu(&mut self, launch: Launch, after: Nanos) {
        self.on_cpu(launch.filled, launch.capacity, launch.experts, after);
    }

    /// Experts on all cores, `slots` slots each, of which some are filled.
    fn on_cpu(&mut self, filled: u32, slots: u32, experts: u32, after: Nanos) {
        self.copy(Work::Gather, self.costs.gather_bytes(filled, slots * experts), after);
        let takes = self.costs.launch(Unit::Cpu) + self.costs.experts(Unit::Cpu, experts, slots);
        let ended = self.timeline.run(Lane::Cpu, Work::Products, after, takes);
        self.moved(experts, slots * experts);
        let macs = self.costs.sizes.expert_macs();
        self.macs.elsewhere += f64::from(filled) * macs;
        self.macs.padding += f64::from(slots * experts - filled) * macs;
        self.scatter(filled, ended);
    }

    fn scatter(&mut self, rows: u32, after: Nanos) {
        self.copy(Work::Scatter, self.costs.scatter_bytes(rows), after);
    }

    /// One core copies.
    fn copy(&mut self, work: Work, bytes: f64, after: Nanos) -> Nanos {
        self.bytes += bytes;
        self.timeline.run(Lane::Cpu, work, after, self.costs.copy(bytes))
    }

    /// Weights, and slots that are read and written.
    fn moved(&mut self, experts: u32, slots: u32) {
        let weights = f64::from(experts) * self.costs.sizes.expert_bytes().0 as f64;
        self.bytes += weights + 2.0 * f64::from(slots) * self.costs.sizes.row_bytes();
    }
}

/// Expert after expert, each with its rows; everything else is hidden behind them.
fn on_gpu(costs: &Costs, chunk: &Chunk) -> Usage {
    let of_expert = |&rows: &u32| costs.launch(Unit::Gpu) + costs.experts(Unit::Gpu, 1, rows);
    let gpu = costs.scores(Unit::Gpu, chunk.rows) + chunk.on_cpu.iter().map(of_expert).sum::<Nanos>();
    let rows = f64::from(chunk.routed());
    let weights = chunk.on_cpu.len() as f64 * costs.sizes.expert_bytes().0 as f64;
    let macs = Macs { elsewhere: rows * costs.sizes.expert_macs(), ..Macs::default() };
    let bytes = weights + 2.0 * rows * costs.sizes.row_bytes();
    Usage { span: gpu, gpu, bytes, macs, ..Usage::default() }
}
