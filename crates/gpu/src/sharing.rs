//! How many threads share out the groups of an output: as was measured, and as an adapter has threads and memory for.

use crate::matrix::{Matrix, PAIR, Slab, parts};
use crate::nodes::Launcher;
use crate::products::{Source, TILE_COUNT, TILE_MAX, TILES};
use duet_kernels::packed::{Form, PANEL};
use duet_kernels::quantize::GROUP;

impl Launcher<'_> {
    /// Threads that share out the groups of an output, where there are so many outputs in such tiles: as many as the adapter has for a
    /// workgroup, and memory that they share, of which so many bytes are something else's.
    pub(crate) fn split(&self, form: Form, outputs: usize, (tile, tiles): (usize, usize), beside: usize) -> usize {
        let busy = self.method.busy[usize::from(tiles > TILES_FEW)];
        if form.is_float() || (tile == TILE_MAX && outputs * tiles >= busy) {
            return 1;
        }
        let fits = |split: usize| {
            let SharedOfGroups { products, minima, row_parts, .. } = SharedOfGroups::of(form, tile, split);
            let bytes = size_of::<f32>() * (products + minima + 4 * row_parts + tile * PAIR);
            self.gpu.takes_workgroup(split * PANEL, bytes + beside + ALIGNED)
        };
        let mut split = self.method.split[size(tile)];
        while split > 1 && !fits(split) {
            split /= 2;
        }
        split
    }

    /// Workgroups that have so many pairs of panels in turns, where there are so many tiles: all of them as many, or one less. Of
    /// many tiles each pair has one.
    pub(crate) fn workgroups(&self, pairs: usize, tile: usize, tiles: usize) -> usize {
        let most = (self.method.workgroups[size(tile)] / tiles.max(1)).max(1);
        if tiles > TILES_FEW { pairs } else { pairs.div_ceil(pairs.div_ceil(most)) }
    }

    /// Whether workgroups round the row that they multiply with a matrix.
    pub(crate) fn rounds_within(&self, source: Source<'_>, matrix: &Matrix) -> bool {
        let beside = row_bytes(matrix.groups);
        let shares =
            |slab: &Slab| !slab.form.is_float() && self.split(slab.form, slab.pairs * PANEL, (1, 1), beside) > 1;
        source.columns <= self.method.rounds_within
            && source.columns.is_multiple_of(GROUP)
            && source.norm.is_none_or(|norm| norm.bias.is_none())
            && matrix.slabs.iter().all(shares)
    }
}

/// Which of [`TILES`] a tile is.
fn size(tile: usize) -> usize {
    TILES.iter().position(|&most| tile <= most).unwrap_or(TILE_COUNT - 1)
}

/// What lies between the arrays that threads share, at most.
const ALIGNED: usize = 64;

/// Bytes of a row that a workgroup rounds: its quants and scales, and what it fetches of it at once.
pub(crate) fn row_bytes(groups: usize) -> usize {
    groups * (GROUP + 4 * size_of::<f32>()) + (fetched(groups * GROUP) + PANEL) * size_of::<f32>()
}

/// Values of a row that threads fetch together to find its moments (`row_moments.wgsl`), of so many.
pub(crate) fn fetched(columns: usize) -> usize {
    columns.clamp(1, 2048)
}

/// Groups that a thread computes before those of all are added up: some for one row, where there is little else to do while
/// weights are on their way.
fn groups_each(form: Form, tile: usize) -> usize {
    if tile == 1 { 2 / parts(form) } else { 1 }
}

/// Tiles that are few.
pub(crate) const TILES_FEW: usize = 2;

/// What threads share that share out groups, of all turns that are under way: lengths of arrays (`product_split.wgsl`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedOfGroups {
    each: usize,
    /// Few rows wait for weights: one turn is added up while the next is multiplied.
    turns: usize,
    products: usize,
    /// One where weights have none, since there is no array of nothing.
    minima: usize,
    row_parts: usize,
}

impl SharedOfGroups {
    pub(crate) fn of(form: Form, tile: usize, split: usize) -> Self {
        let (each, turns) = (groups_each(form, tile), if tile < TILE_MAX { 2 } else { 1 });
        let groups = turns * split * each;
        let outputs = groups * parts(form) * PAIR;
        let minima = if form.has_min() { outputs } else { 1 };
        Self { each, turns, products: outputs * tile, minima, row_parts: groups * tile }
    }

    pub(crate) fn constants(self) -> [(&'static str, u32); 5] {
        let Self { each, turns, products, minima, row_parts } = self;
        let all = [each, turns, products, minima, row_parts].map(|number| number as u32);
        let names = ["EACH", "TURNS", "PRODUCTS", "MINIMA", "ROW_PARTS"];
        std::array::from_fn(|at| (names[at], all[at]))
    }
}
