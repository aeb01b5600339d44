//! Products: rows in the form that they are read in, and the launches that multiply them with packed weights.

use crate::error::GpuError;
use crate::matrix::{Matrix, Slab, gating};
use crate::nodes::{Launcher, NormOnGpu, whole};
use crate::prepared::Groups;
use crate::recording::Recording;
use crate::room::Operands;
use crate::shader::{PRODUCT, PRODUCT_FLOATS, PRODUCT_OF_ROW, PRODUCT_SPLIT, PRODUCT_TILED, QUANTIZE, Shader};
use crate::sharing::{SharedOfGroups, fetched, row_bytes};
use crate::tiled::{self, Tiled};
use crate::weights_in_place::Panels;
use duet_kernels::matmul::Gating;
use duet_kernels::packed::PANEL;
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
    /// Workgroups that a launch then has at most, for the same tiles: each goes on with other outputs.
    pub(crate) workgroups: [usize; TILE_COUNT],
    /// Threads that an adapter is busy with, of few whole tiles and of many: where they have as many, or more, each thread has outputs
    /// of its own.
    pub(crate) busy: [usize; 2],
    /// From how many workgroups on products of many rows have tiles whose threads share what they multiply.
    pub(crate) tiled: Tiled,
    /// Columns of one row, at most, that each workgroup rounds for itself, which saves a launch before.
    pub(crate) rounds_within: usize,
}

/// How many sizes tiles have.
pub(crate) const TILE_COUNT: usize = 3;
/// Rows of a tile at most.
pub(crate) const TILES: [usize; TILE_COUNT] = [1, 4, TILE_MAX];

impl Method {
    /// One that any adapter takes.
    pub(crate) const FIRST: Self = Self {
        products: Products::Bytes,
        width: 64,
        split: [1; TILE_COUNT],
        workgroups: [usize::MAX; TILE_COUNT],
        busy: [usize::MAX; 2],
        tiled: Tiled::NEVER,
        rounds_within: 0,
    };
}

/// Which shader a product has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A thread has outputs of its own.
    Apart,
    /// So many threads share out the groups of an output.
    Split(usize),
    /// Threads have so many rows each, and share what they multiply.
    Tiled(usize),
}

/// How it is launched.
#[derive(Clone, Copy, Debug)]
struct Shaped {
    shape: Shape,
    /// Rows of a tile, and how many tiles there are.
    tile: usize,
    tiles: usize,
    /// Workgroups of a tile, and threads of each.
    columns: usize,
    threads: usize,
}

impl Shape {
    fn shader(self) -> &'static Shader {
        match self {
            Self::Apart => &PRODUCT,
            Self::Split(_) => &PRODUCT_SPLIT,
            Self::Tiled(_) => &PRODUCT_TILED,
        }
    }
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
    /// One, which each workgroup norms and rounds for itself.
    Rounding(Source<'a>),
    /// Places of experts, sorted: tiles of so many rows at most, and how many places share a row that is read.
    Routed { routes: &'a wgpu::Buffer, tiles: usize, tile: usize, share: usize },
}

impl<'a> RowsOf<'a> {
    /// The row that is not rounded yet.
    fn rounding(self) -> Option<Source<'a>> {
        match self {
            Self::Rounding(source) => Some(source),
            _ => None,
        }
    }
}

/// Rows before they are rounded: normed where there is a norm.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) values: &'a wgpu::Buffer,
    pub(crate) norm: Option<&'a NormOnGpu>,
    pub(crate) columns: usize,
}

impl Launcher<'_> {
    /// A product of rows that are not rounded yet.
    pub(crate) fn multiplied(
        &self,
        to: &mut Recording<'_>,
        source: Source<'_>,
        product: Product<'_>,
        rows: usize,
    ) -> Result<(), GpuError> {
        if rows == 1 && self.rounds_within(source, product.matrix) {
            return self.product(to, Product { rows: RowsOf::Rounding(source), ..product });
        }
        self.operands(to, source, (product.matrix, product.operands), rows)?;
        self.product(to, Product { rows: RowsOf::All(rows), ..product })
    }

    /// Rows as products with a matrix read them, normed before where there is a norm.
    pub(crate) fn operands(
        &self,
        to: &mut Recording<'_>,
        source: Source<'_>,
        (matrix, operands): (&Matrix, &Operands),
        rows: usize,
    ) -> Result<(), GpuError> {
        if matrix.has_quants() {
            let form = if self.method.products == Products::Floats { 1 } else { 0 };
            self.rounded(to, source, (form, &operands.quants, &operands.scales), rows)?;
        }
        if matrix.has_floats() {
            self.rounded(to, source, (2, &operands.unrounded, &operands.scales), rows)?;
        }
        Ok(())
    }

    /// Rows in a form that the shader numbers.
    pub(crate) fn rounded(
        &self,
        to: &mut Recording<'_>,
        Source { values, norm, columns }: Source<'_>,
        (form, quants, scales): (u32, &wgpu::Buffer, &wgpu::Buffer),
        rows: usize,
    ) -> Result<(), GpuError> {
        let bias = norm.and_then(|norm| norm.bias.as_ref());
        let constants = [
            ("COLUMNS", columns as u32),
            ("NORMED", norm.is_some().into()),
            ("CENTRED", bias.is_some().into()),
            ("FETCHED", fetched(columns) as u32),
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
        let shaped = self.shaped(matrix, slab, rows);
        let (routes, count) = match rows {
            RowsOf::All(count) => (spare, count),
            RowsOf::Rounding(_) => (spare, 1),
            RowsOf::Routed { routes, .. } => (routes, 0),
        };
        let (first, outputs) = match epilogue {
            Epilogue::Gated(_) => (slab.first / 2, (width - slab.first / 2).min(slab.pairs * PANEL)),
            _ => (slab.first, slab.outputs),
        };
        let Shaped { shape, tile, tiles, .. } = shaped;
        let epsilon = rows.rounding().and_then(|source| source.norm).map_or(0.0, |norm| norm.epsilon).to_bits();
        let told = [count as u32, slab.pairs as u32, first as u32, outputs as u32, tiles as u32, epsilon];
        let groups = Groups(shaped.columns, tiles);
        let mut constants = self.constants(product, slab, shaped);
        let bias = bias.unwrap_or(spare);
        let of_thread = match shape {
            Shape::Tiled(each) => each as u32,
            _ => tile as u32,
        };
        if slab.form.is_float() {
            let pipeline = self.gpu.pipeline(&PRODUCT_FLOATS, of_thread, &constants)?;
            let buffers = [whole(out), whole(bias), slab.quants.bound(), whole(&operands.unrounded), whole(routes)];
            to.launch(&pipeline, &buffers, &told, groups);
            return Ok(());
        }
        constants.push(("FLOATS", (self.method.products == Products::Floats).into()));
        let (shader, [one, other, row_scales]) = if let Some(Source { values, norm, columns }) = rows.rounding() {
            constants.extend([("COLUMNS", columns as u32), ("NORMED", norm.is_some().into()), ("CENTRED", 0)]);
            constants.extend([("FETCHED", fetched(columns) as u32), ("ROW_QUADS", 2 * matrix.groups as u32)]);
            (&PRODUCT_OF_ROW, [values, values, norm.map_or(spare, |norm| &norm.weight)])
        } else {
            (shape.shader(), [&operands.quants, &operands.quants, &operands.scales])
        };
        let pipeline = self.gpu.pipeline(shader, of_thread, &constants)?;
        let [quants, scales] = [&slab.quants, &slab.scales].map(Panels::bound);
        let [out, bias, one, other, row_scales, routes] = [out, bias, one, other, row_scales, routes].map(whole);
        to.launch(&pipeline, &[out, bias, quants, scales, one, other, row_scales, routes], &told, groups);
        Ok(())
    }

    /// What shaders of products are to know of one.
    fn constants(&self, product: &Product<'_>, slab: &Slab, shaped: Shaped) -> Vec<(&'static str, u32)> {
        let Product { matrix, bias, rows, width, epilogue, .. } = *product;
        let (kind, gates) = match epilogue {
            Epilogue::Store => (0, 0),
            Epilogue::Add => (1, 0),
            Epilogue::Gated(by) => (2, gating(by)),
        };
        let share = match rows {
            RowsOf::Routed { share, .. } => share,
            _ => 1,
        };
        let mut constants = slab.constants();
        constants.extend([
            ("GROUPS", matrix.groups as u32),
            ("WIDTH", shaped.threads as u32),
            ("EPILOGUE", kind),
            ("GATING", gates),
            ("BIAS", bias.is_some().into()),
            ("STRIDE", width as u32),
            ("ROUTED", matches!(rows, RowsOf::Routed { .. }).into()),
            ("SHARE", share as u32),
        ]);
        if let Shape::Split(by) = shaped.shape {
            constants.push(("SPLIT", by as u32));
            constants.extend(SharedOfGroups::of(slab.form, shaped.tile, by).constants());
        }
        constants
    }

    /// How a product with some panels is launched.
    fn shaped(&self, matrix: &Matrix, slab: &Slab, rows: RowsOf<'_>) -> Shaped {
        let (tile, tiles) = match rows {
            RowsOf::All(count) => {
                if let Some(each) = self.tiled(slab, count) {
                    let (tile, columns) = (tiled::tile(each), tiled::workgroups(slab.pairs));
                    let tiles = count.div_ceil(tile);
                    return Shaped { shape: Shape::Tiled(each), tile, tiles, columns, threads: tiled::THREADS };
                }
                (tile(count), count.div_ceil(tile(count)))
            }
            RowsOf::Rounding(_) => (1, 1),
            RowsOf::Routed { tiles, tile, .. } => (tile, tiles),
        };
        let of_row = rows.rounding().map_or(0, |_| row_bytes(matrix.groups));
        match self.split(slab.form, slab.pairs * PANEL, (tile, tiles), of_row) {
            1 => {
                let threads = self.method.width;
                let columns = (slab.pairs * PANEL).div_ceil(threads);
                Shaped { shape: Shape::Apart, tile, tiles, columns, threads }
            }
            by => {
                let columns = match rows {
                    // Most of its tiles may be empty.
                    RowsOf::Routed { .. } => slab.pairs,
                    _ => self.workgroups(slab.pairs, tile, tiles),
                };
                Shaped { shape: Shape::Split(by), tile, tiles, columns, threads: by * PANEL }
            }
        }
    }
}

/// Rows of a thread.
pub(crate) fn tile(rows: usize) -> usize {
    TILES.into_iter().find(|&tile| rows <= tile).unwrap_or(TILE_MAX)
}
