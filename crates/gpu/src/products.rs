//! Products: rows in the form that they are read in, and the launches that multiply them with packed weights.

use crate::error::GpuError;
use crate::matrix::{Matrix, Slab, gating};
use crate::nodes::{Launcher, NormOnGpu, whole};
use crate::recording::{Groups, Recording};
use crate::room::Operands;
use crate::shader::{PRODUCT, PRODUCT_FLOATS, PRODUCT_OF_ROW, PRODUCT_SPLIT, QUANTIZE};
use crate::sharing::{SharedOfGroups, fetched, row_bytes};
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
        rounds_within: 0,
    };
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
        let (routes, count, tile, tiles, share) = match rows {
            RowsOf::All(count) => (spare, count, tile(count), count.div_ceil(tile(count)), 1),
            RowsOf::Rounding(_) => (spare, 1, 1, 1, 1),
            RowsOf::Routed { routes, tiles, tile, share } => (routes, 0, tile, tiles, share),
        };
        let (kind, gates) = match epilogue {
            Epilogue::Store => (0, 0),
            Epilogue::Add => (1, 0),
            Epilogue::Gated(by) => (2, gating(by)),
        };
        let rounding = match rows {
            RowsOf::Rounding(source) => Some(source),
            _ => None,
        };
        let of_row = rounding.map_or(0, |_| row_bytes(matrix.groups));
        let split = self.split(slab.form, slab.pairs * PANEL, (tile, tiles), of_row);
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
        let norm = rounding.and_then(|source| source.norm);
        let epsilon = norm.map_or(0.0, |norm| norm.epsilon).to_bits();
        let told = [count as u32, slab.pairs as u32, first as u32, outputs as u32, tiles as u32, epsilon];
        let columns = match rows {
            _ if !is_split => (slab.pairs * PANEL).div_ceil(threads),
            // Most of its tiles may be empty.
            RowsOf::Routed { .. } => slab.pairs,
            _ => self.workgroups(slab.pairs, tile, tiles),
        };
        let groups = Groups(columns, tiles);
        if slab.form.is_float() {
            let pipeline = self.gpu.pipeline(&PRODUCT_FLOATS, tile as u32, &constants)?;
            to.launch(&pipeline, &[out, bias, &slab.quants, &operands.unrounded, routes].map(whole), &told, groups);
        } else {
            constants.push(("FLOATS", (self.method.products == Products::Floats).into()));
            if is_split {
                constants.push(("SPLIT", split as u32));
                constants.extend(SharedOfGroups::of(slab.form, tile, split).constants());
            }
            let (shader, given) = if let Some(Source { values, norm, columns }) = rounding {
                constants.extend([("COLUMNS", columns as u32), ("NORMED", norm.is_some().into()), ("CENTRED", 0)]);
                constants.extend([("FETCHED", fetched(columns) as u32), ("ROW_QUADS", 2 * matrix.groups as u32)]);
                (&PRODUCT_OF_ROW, [values, values, norm.map_or(spare, |norm| &norm.weight)])
            } else {
                let (quants, scales) = (&operands.quants, &operands.scales);
                (if is_split { &PRODUCT_SPLIT } else { &PRODUCT }, [quants, quants, scales])
            };
            let pipeline = self.gpu.pipeline(shader, tile as u32, &constants)?;
            let [one, other, scales] = given;
            let buffers = [out, bias, &slab.quants, &slab.scales, one, other, scales, routes];
            to.launch(&pipeline, &buffers.map(whole), &told, groups);
        }
        Ok(())
    }
}

/// Rows of a thread.
pub(crate) fn tile(rows: usize) -> usize {
    TILES.into_iter().find(|&tile| rows <= tile).unwrap_or(TILE_MAX)
}
