//! Experts in place of a feed-forward block, on a GPU from the router to the residual stream: nothing of which row goes where
//! comes back to the processor. Scores, choices and sums have the order of `duet_kernels::fused::experts`.
//!
//! A row's places (its experts) are sorted by expert and cut into tiles, and a workgroup of a product computes a tile with that
//! expert's weights; tiles that there are not are workgroups that end at once.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::matrix::{Matrix, WeightBytes};
use crate::nodes::{DenseOnGpu, Launcher, NormOnGpu, whole};
use crate::prepared::Groups;
use crate::products::{Epilogue, Product, RowsOf, Source, TILE_MAX};
use crate::recording::Recording;
use crate::room::{Operands, Room};
use crate::shader::{CHOOSE, COMBINE, SCORES, SORT_PLACES};
use duet_kernels::fused::{Experts, Feed, Feeds, Routing};
use duet_kernels::matmul::Gating;
use duet_kernels::quantize::GROUP;
use duet_model::arch::{Blueprint, ExpertPlan};

/// The experts of a layer.
#[derive(Debug)]
pub(crate) struct ExpertsOnGpu {
    widths: ExpertWidths,
    routing: Routing,
    router: wgpu::Buffer,
    router_bias: Option<wgpu::Buffer>,
    choice_bias: Option<wgpu::Buffer>,
    /// Of all experts, one after the other.
    gate_up: Matrix,
    down: Matrix,
    shared: Option<DenseOnGpu>,
}

/// How many experts there are, and how wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpertWidths {
    pub(crate) count: usize,
    pub(crate) chosen: usize,
    pub(crate) ffn: usize,
    pub(crate) shared: Option<usize>,
    /// Whether the one that all rows go to has a gate of its own.
    pub(crate) shared_gate: bool,
}

/// The most experts that `sort_places.wgsl` counts.
const EXPERTS_MAX: usize = 512;

impl ExpertWidths {
    /// Of a model's experts, if it has any.
    pub(crate) fn of(blueprint: &Blueprint) -> Option<Self> {
        let ExpertPlan { count, chosen, ffn, shared, shared_gate, .. } = blueprint.experts?;
        Some(Self { count, chosen, ffn, shared, shared_gate })
    }

    /// What a row goes to, the one that all go to among them.
    fn places(self) -> usize {
        self.chosen + usize::from(self.shared.is_some())
    }

    fn scores(self) -> usize {
        self.count + usize::from(self.shared_gate)
    }
}

/// Memory for the rows of a pass on their way through experts.
#[derive(Debug)]
pub(crate) struct ExpertRoom {
    scores: wgpu::Buffer,
    chosen: wgpu::Buffer,
    weights: wgpu::Buffer,
    routes: wgpu::Buffer,
    /// Of each place.
    gated: wgpu::Buffer,
    operands: Operands,
    products: wgpu::Buffer,
    /// Of each row, from the one that all rows go to.
    shared: wgpu::Buffer,
}

impl ExpertRoom {
    /// What it takes for so many rows.
    pub(crate) fn bytes(widths: ExpertWidths, hidden: usize, rows: usize) -> u64 {
        let (places, columns) = (rows * widths.places(), widths.ffn.next_multiple_of(GROUP));
        let lists = 2 * places + (places + widths.count) * 4 + places;
        let operands = places * (2 * columns + columns / GROUP * 4);
        (4 * (rows * (widths.scores() + hidden) + lists + places * (widths.ffn + hidden) + operands)) as u64
    }

    pub(crate) fn new(gpu: &Gpu, widths: ExpertWidths, hidden: usize, rows: usize) -> Self {
        let places = rows * widths.places();
        let words = |label, count: usize| gpu.empty(label, count * 4);
        Self {
            scores: words("scores of experts", rows * widths.scores()),
            chosen: words("experts of rows", places),
            weights: words("weights of experts", places),
            routes: words("routes", (places + widths.count) * 4 + places),
            gated: words("gated places", places * widths.ffn),
            operands: Operands::new(gpu, widths.ffn, places, true),
            products: words("products of experts", places * hidden),
            shared: words("shared products", if widths.shared.is_some() { rows * hidden } else { 1 }),
        }
    }
}

/// Whether a model's experts can be computed here.
pub(crate) fn suit(plan: &ExpertPlan) -> Result<(), GpuError> {
    if matches!(plan.routing, Routing::SparseMixer { .. }) {
        return Err(GpuError::Model("its experts are chosen by a sparse mixer"));
    }
    if plan.count > EXPERTS_MAX {
        return Err(GpuError::Model("it has more than 512 experts in a layer"));
    }
    Ok(())
}

impl ExpertsOnGpu {
    pub(crate) fn new(gpu: &Gpu, experts: &Experts<'_>) -> Result<Self, GpuError> {
        let Feeds::All(feeds) = experts.experts else { return Err(GpuError::Model("its experts are on disk")) };
        if experts.biases.is_some() {
            return Err(GpuError::Model("its experts have biases"));
        }
        if experts.beside.is_some() {
            return Err(GpuError::Model("its experts stand beside a dense block"));
        }
        let gate = experts.shared.and_then(|shared| shared.gate);
        let router = [experts.router, gate.unwrap_or_default()].concat();
        let floats = |label, floats: Option<&[f32]>| floats.map(|floats| gpu.floats(label, floats));
        let inner = |feed: &Feed| feed.down.inputs();
        Ok(Self {
            widths: ExpertWidths {
                count: feeds.len(),
                chosen: experts.chosen,
                ffn: feeds.first().map_or(0, inner),
                shared: experts.shared.map(|shared| inner(shared.feed)),
                shared_gate: gate.is_some(),
            },
            routing: experts.routing,
            router: gpu.floats("router", &router),
            router_bias: floats("router's bias", experts.router_bias),
            choice_bias: floats("bias of choices", experts.choice_bias),
            gate_up: Matrix::of_experts(gpu, feeds.iter().map(|feed| &feed.gate_up))?,
            down: Matrix::of_experts(gpu, feeds.iter().map(|feed| &feed.down))?,
            shared: experts.shared.map(|shared| DenseOnGpu::new(gpu, shared.feed, None)).transpose()?,
        })
    }

    pub(crate) fn bytes(&self) -> WeightBytes {
        let router = WeightBytes { copied: self.router.size(), shared: 0 };
        let for_all_rows = self.shared.iter().map(DenseOnGpu::bytes);
        [self.gate_up.bytes(), self.down.bytes(), router].into_iter().chain(for_all_rows).sum()
    }
}

impl Launcher<'_> {
    /// From the residual stream back to it.
    pub(crate) fn experts(
        &self,
        to: &mut Recording<'_>,
        experts: &ExpertsOnGpu,
        (norm, gating): (&NormOnGpu, Gating),
        hidden: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let Room { residual, operands, gated, experts: Some(room), .. } = self.room else {
            return Err(GpuError::Model("a pass without room for experts"));
        };
        let ExpertWidths { chosen, ffn, shared, .. } = experts.widths;
        let normed = Source { values: residual, norm: Some(norm), columns: hidden };
        self.operands(to, normed, (&experts.gate_up, operands), rows)?;
        // The router reads rows that are normed and not rounded.
        let unrounded = (2, &operands.unrounded, &operands.scales);
        self.rounded(to, normed, unrounded, rows)?;
        let routed = self.route(to, experts, room, hidden, rows)?;
        let of_experts = |matrix, operands, share, out, width, epilogue| {
            let rows = RowsOf::Routed { routes: &room.routes, tiles: routed.tiles, tile: routed.tile, share };
            Product { matrix, bias: None, operands, rows, out, width, epilogue }
        };
        let gates = Epilogue::Gated(gating);
        self.product(to, of_experts(&experts.gate_up, operands, experts.widths.places(), &room.gated, ffn, gates))?;
        let places = rows * experts.widths.places();
        let of_places = Source { values: &room.gated, norm: None, columns: ffn };
        self.operands(to, of_places, (&experts.down, &room.operands), places)?;
        self.product(to, of_experts(&experts.down, &room.operands, 1, &room.products, hidden, Epilogue::Store))?;
        if let (Some(feed), Some(ffn)) = (&experts.shared, shared) {
            self.gated(to, normed, (&feed.gate_up, gating), ffn, rows)?;
            let of_shared = Source { values: gated, norm: None, columns: ffn };
            self.multiplied(to, of_shared, self.stored(&feed.down, None, &room.shared, rows), rows)?;
        }
        let places = experts.widths.places() as u32;
        let constants = [("COLUMNS", hidden as u32), ("CHOSEN", chosen as u32), ("PLACES", places)];
        let pipeline = self.gpu.pipeline(&COMBINE, 1, &constants)?;
        let buffers = [residual, &room.products, &room.weights, &room.shared];
        to.launch(&pipeline, &buffers.map(whole), &[], Groups(hidden.div_ceil(64), rows));
        Ok(())
    }

    /// Scores, choices, and places sorted by expert.
    fn route(
        &self,
        to: &mut Recording<'_>,
        experts: &ExpertsOnGpu,
        room: &ExpertRoom,
        hidden: usize,
        rows: usize,
    ) -> Result<Routed, GpuError> {
        let (widths, spare) = (experts.widths, &self.room.spare);
        let (count, chosen) = (widths.count as u32, widths.chosen as u32);
        let constants = [
            ("COLUMNS", hidden as u32),
            ("STRIDE", hidden.next_multiple_of(GROUP) as u32),
            ("EXPERTS", count),
            ("BIAS", experts.router_bias.is_some().into()),
        ];
        let pipeline = self.gpu.pipeline(&SCORES, 1, &constants)?;
        let bias = experts.router_bias.as_ref().unwrap_or(spare);
        let buffers = [&self.room.operands.unrounded, &experts.router, bias, &room.scores];
        to.launch(&pipeline, &buffers.map(whole), &[], Groups(widths.scores(), rows));

        let (number, divided, least, scale) = match experts.routing {
            Routing::Softmax => (0, false, 0.0, 1.0),
            Routing::SoftmaxOfChosen => (1, false, 0.0, 1.0),
            Routing::Sigmoid { divided, scale } => (2, divided.is_some(), divided.unwrap_or(0.0), scale),
            Routing::SparseMixer { .. } => return Err(GpuError::Model("its experts are chosen by a sparse mixer")),
        };
        let shared = match widths.shared {
            None => 0,
            Some(_) => 1 + u32::from(widths.shared_gate),
        };
        let constants = [
            ("EXPERTS", count),
            ("CHOSEN", chosen),
            ("ROUTING", number),
            ("DIVIDED", divided.into()),
            ("BIAS", experts.choice_bias.is_some().into()),
            ("SHARED", shared),
        ];
        let pipeline = self.gpu.pipeline(&CHOOSE, 1, &constants)?;
        let bias = experts.choice_bias.as_ref().unwrap_or(spare);
        let told = [rows as u32, f32::to_bits(least), f32::to_bits(scale)];
        let buffers = [&room.scores, bias, &room.chosen, &room.weights];
        to.launch(&pipeline, &buffers.map(whole), &told, Groups(rows.div_ceil(64), 1));

        let routed = Routed::of(widths, rows);
        let constants =
            [("EXPERTS", count), ("CHOSEN", chosen), ("PLACES", widths.places() as u32), ("TILE", routed.tile as u32)];
        let pipeline = self.gpu.pipeline(&SORT_PLACES, 1, &constants)?;
        let told = [(rows * widths.chosen) as u32, routed.tiles as u32];
        to.launch(&pipeline, &[&room.chosen, &room.routes].map(whole), &told, Groups(1, 1));
        Ok(routed)
    }
}

/// How sorted places are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Routed {
    tile: usize,
    /// At most: each expert may have one that is not full.
    tiles: usize,
}

impl Routed {
    /// Tiles as large as an expert has places, if all have as many.
    fn of(widths: ExpertWidths, rows: usize) -> Self {
        let places = rows * widths.chosen;
        let tile = match places / widths.count.max(1) {
            0 | 1 => 1,
            2..=4 => 4,
            _ => TILE_MAX,
        };
        Self { tile, tiles: places.min(places / tile + widths.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_as_many_as_places_may_fill() {
        let widths = ExpertWidths { count: 8, chosen: 2, ffn: 32, shared: None, shared_gate: false };
        assert_eq!(Routed::of(widths, 1), Routed { tile: 1, tiles: 2 });
        assert_eq!(Routed::of(widths, 16), Routed { tile: 4, tiles: 16 });
        // Seven experts have one place each, and one all others.
        let (rows, routed) = (256, Routed::of(widths, 256));
        assert_eq!(routed.tile, TILE_MAX);
        assert!((rows * 2 - 7_usize).div_ceil(TILE_MAX) + 7 <= routed.tiles);
    }
}
