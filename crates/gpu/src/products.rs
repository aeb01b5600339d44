//! Products: rows in the form that they are read in, and the launches that multiply them with packed weights.

use crate::error::GpuError;
use crate::matrix::{Matrix, PAIR, Slab, gating, parts};
use crate::nodes::{Launcher, NormOnGpu, whole};
use crate::recording::{Groups, Recording};
use crate::room::Operands;
use crate::shader::{PRODUCT, PRODUCT_FLOATS, PRODUCT_SPLIT, QUANTIZE};
use duet_kernels::matmul::Gating;
use duet_kernels::packed::{Form, PANEL};
use duet_kernels::quantize::GROUP;

/// Rows of a thread at most.
pub(crate) const TILE_MAX: usize = 8;

/// How products are computed; the results are the same to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Products {
    /// Four bytes at a time (`dot4I8Packed`).
    Bytes,
    /// Integers as floats, which hold them exactly.
    Floats,
}

/// How launches are shaped; the results are the same to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    pub(crate) products: Products,
    /// Threads of a workgroup.
    pub(crate) width: usize,
    /// Threads that share out the groups of an output, for tiles as [`TILES`] has them.
    pub(crate) split: [usize; TILE_COUNT],
    /// Threads that an adapter is busy with: where whole tiles have as many, or more, each has outputs of its own.
    pub(crate) busy: usize,
}

/// How many sizes tiles have.
pub(crate) const TILE_COUNT: usize = 3;
/// Rows of a tile at most.
pub(crate) const TILES: [usize; TILE_COUNT] = [1, 4, TILE_MAX];

impl Method {
    /// One that any adapter takes.
    pub(crate) const FIRST: Self =
        Self { products: Products::Bytes, width: 64, split: [1; TILE_COUNT], busy: usize::MAX };
}

/// What becomes of a product's results.
#[derive(Clone, Copy)]
pub(crate) enum Epilogue {
    Store,
    Add,
    Gated(Gating),
}

/// A product.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) bias: Option<&'a wgpu::Buffer>,
    pub(crate) operands: &'a Operands,
    pub(crate) rows: RowsOf<'a>,
    pub(crate) out: &'a wgpu::Buffer,
    /// Floats from one row of results to the next.
    pub(crate) width: usize,
    pub(crate) epilogue: Epilogue,
}

/// Which rows a product has.
#[derive(Clone, Copy)]
pub(crate) enum RowsOf<'a> {
    /// So many, one after the other.
    All(usize),
    /// Places of experts, sorted: tiles of so many rows at most, and how many places share a row that is read.
    Routed { routes: &'a wgpu::Buffer, tiles: usize, tile: usize, share: usize },
}

impl Launcher<'_> {
    /// Rows as products with a matrix read them, normed before where there is a norm.
    pub(crate) fn operands(
        &self,
        to: &mut Recording<'_>,
        norm: Option<&NormOnGpu>,
        values: &wgpu::Buffer,
        (matrix, operands): (&Matrix, &Operands),
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        if matrix.has_quants() {
            let form = if self.method.products == Products::Floats { 1 } else { 0 };
            self.rounded(to, norm, values, (form, &operands.quants, &operands.scales), columns, rows)?;
        }
        if matrix.has_floats() {
            self.rounded(to, norm, values, (2, &operands.unrounded, &operands.scales), columns, rows)?;
        }
        Ok(())
    }

    /// Rows in a form that the shader numbers.
    pub(crate) fn rounded(
        &self,
        to: &mut Recording<'_>,
        norm: Option<&NormOnGpu>,
        values: &wgpu::Buffer,
        (form, quants, scales): (u32, &wgpu::Buffer, &wgpu::Buffer),
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let bias = norm.and_then(|norm| norm.bias.as_ref());
        let constants = [
            ("COLUMNS", columns as u32),
            ("NORMED", norm.is_some().into()),
            ("CENTRED", bias.is_some().into()),
            ("FLOATS", form),
        ];
        let pipeline = self.gpu.pipeline(&QUANTIZE, 1, &constants)?;
        // What is not read is bound all the same.
        let weight = norm.map_or(&self.room.spare, |norm| &norm.weight);
        let buffers = [values, weight, bias.unwrap_or(weight), quants, scales].map(whole);
        let told = [norm.map_or(0.0, |norm| norm.epsilon).to_bits()];
        to.launch(&pipeline, &buffers, &told, Groups(columns.div_ceil(64 * GROUP), rows));
        Ok(())
    }

    pub(crate) fn product(&self, to: &mut Recording<'_>, product: Product<'_>) -> Result<(), GpuError> {
        product.matrix.slabs.iter().try_for_each(|slab| self.slab(to, &product, slab))
    }

    fn slab(&self, to: &mut Recording<'_>, product: &Product<'_>, slab: &Slab) -> Result<(), GpuError> {
        let Product { matrix, bias, operands, rows, out, width, epilogue } = *product;
        let spare = &self.room.spare;
        let (routes, count, tile, tiles, share) = match rows {
            RowsOf::All(count) => (spare, count, tile(count), count.div_ceil(tile(count)), 1),
            RowsOf::Routed { routes, tiles, tile, share } => (routes, 0, tile, tiles, share),
        };
        let (kind, gates) = match epilogue {
            Epilogue::Store => (0, 0),
            Epilogue::Add => (1, 0),
            Epilogue::Gated(by) => (2, gating(by)),
        };
        let split = self.split(slab.form, slab.pairs * PANEL * tiles, tile);
        let is_split = split > 1;
        let threads = if is_split { split * PANEL } else { self.method.width };
        let mut constants = slab.constants();
        constants.extend([
            ("GROUPS", matrix.groups as u32),
            ("WIDTH", threads as u32),
            ("EPILOGUE", kind),
            ("GATING", gates),
            ("BIAS", bias.is_some().into()),
            ("STRIDE", width as u32),
            ("ROUTED", matches!(rows, RowsOf::Routed { .. }).into()),
            ("SHARE", share as u32),
        ]);
        let (first, outputs) = match epilogue {
            Epilogue::Gated(_) => (slab.first / 2, (width - slab.first / 2).min(slab.pairs * PANEL)),
            _ => (slab.first, slab.outputs),
        };
        let bias = bias.unwrap_or(spare);
        let told = [count as u32, slab.pairs as u32, first as u32, outputs as u32, tiles as u32];
        let columns = if is_split { slab.pairs } else { (slab.pairs * PANEL).div_ceil(threads) };
        let groups = Groups(columns, tiles);
        if slab.form.is_float() {
            let pipeline = self.gpu.pipeline(&PRODUCT_FLOATS, tile as u32, &constants)?;
            to.launch(&pipeline, &[out, bias, &slab.quants, &operands.unrounded, routes].map(whole), &told, groups);
        } else {
            constants.push(("FLOATS", (self.method.products == Products::Floats).into()));
            let shader = if is_split { &PRODUCT_SPLIT } else { &PRODUCT };
            if is_split {
                let (each, minima) = (groups_each(slab.form, tile), minima(slab.form, tile, split));
                constants.extend([("SPLIT", split as u32), ("EACH", each as u32), ("MINIMA", minima as u32)]);
            }
            let pipeline = self.gpu.pipeline(shader, tile as u32, &constants)?;
            let (quants, scales) = (&operands.quants, &operands.scales);
            let buffers = [out, bias, &slab.quants, &slab.scales, quants, quants, scales, routes];
            to.launch(&pipeline, &buffers.map(whole), &told, groups);
        }
        Ok(())
    }
}

impl Launcher<'_> {
    /// Threads that share out the groups of an output, where there are so many outputs in such tiles: as many as the adapter has for a
    /// workgroup, and memory that they share.
    fn split(&self, form: Form, outputs: usize, tile: usize) -> usize {
        if form.is_float() || (tile == TILE_MAX && outputs >= self.method.busy) {
            return 1;
        }
        let size = TILES.iter().position(|&most| tile <= most).unwrap_or(TILE_COUNT - 1);
        let limits = self.gpu.device.limits();
        let fits = |split: usize| {
            let of_rows = 4 * tile * split * groups_each(form, tile);
            let bytes = size_of::<f32>() * (shared_products(form, tile, split) + minima(form, tile, split) + of_rows);
            split * PANEL <= limits.max_compute_invocations_per_workgroup as usize
                && split * PANEL <= limits.max_compute_workgroup_size_x as usize
                && bytes <= limits.max_compute_workgroup_storage_size as usize
        };
        let mut split = self.method.split[size];
        while split > 1 && !fits(split) {
            split /= 2;
        }
        split
    }
}

/// Groups that a thread computes before those of all are added up: some for one row, where there is little else to do while
/// weights are on their way.
fn groups_each(form: Form, tile: usize) -> usize {
    if tile == 1 { 2 / parts(form) } else { 1 }
}

/// Products that threads share.
fn shared_products(form: Form, tile: usize, split: usize) -> usize {
    split * groups_each(form, tile) * parts(form) * tile * PAIR
}

/// Minima that they share; one where weights have none, since there is no array of nothing.
fn minima(form: Form, tile: usize, split: usize) -> usize {
    if form.has_min() { shared_products(form, tile, split) / tile } else { 1 }
}

/// Rows of a thread.
pub(crate) fn tile(rows: usize) -> usize {
    TILES.into_iter().find(|&tile| rows <= tile).unwrap_or(TILE_MAX)
}
