//! What the token-wise nodes of a layer are made of, launch by launch.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::matrix::{Matrix, gating};
use crate::recording::{Groups, Recording};
use crate::room::Room;
use crate::shader::{ADD_NORMED, MOMENTS, PRODUCT, PRODUCT_FLOATS, QUANTIZE};
use duet_kernels::fused::{Block, FfnWeights, HeadWeights, Norm, QkvWeights, RowNorm};
use duet_kernels::matmul::Gating;
use duet_kernels::packed::PANEL;

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

/// The norm of rows.
#[derive(Debug)]
pub(crate) struct NormOnGpu {
    weight: wgpu::Buffer,
    bias: Option<wgpu::Buffer>,
    epsilon: f32,
}

/// The first node of a layer.
#[derive(Debug)]
pub(crate) struct QkvOnGpu {
    norm: NormOnGpu,
    pub(crate) matrix: Matrix,
    bias: Option<wgpu::Buffer>,
}

/// The last node of a layer.
#[derive(Debug)]
pub(crate) struct FfnOnGpu {
    output: Matrix,
    output_bias: Option<wgpu::Buffer>,
    output_norm: Option<NormOnGpu>,
    norm: NormOnGpu,
    gating: Gating,
    gate_up: Matrix,
    pub(crate) down: Matrix,
    down_norm: Option<NormOnGpu>,
}

/// The head.
#[derive(Debug)]
pub(crate) struct HeadOnGpu {
    norm: NormOnGpu,
    pub(crate) matrix: Matrix,
    bias: Option<wgpu::Buffer>,
}

impl NormOnGpu {
    pub(crate) fn plain(gpu: &Gpu, norm: Norm<'_>) -> Self {
        Self { weight: gpu.floats("norm", norm.weight), bias: None, epsilon: norm.epsilon }
    }

    fn of(gpu: &Gpu, norm: RowNorm<'_>) -> Self {
        match norm {
            RowNorm::Rms(norm) => Self::plain(gpu, norm),
            RowNorm::Layer(norm, bias) => {
                Self { bias: Some(gpu.floats("norm's bias", bias)), ..Self::plain(gpu, norm) }
            }
        }
    }
}

impl QkvOnGpu {
    pub(crate) fn new(gpu: &Gpu, weights: &QkvWeights<'_>) -> Result<Self, GpuError> {
        Ok(Self {
            norm: NormOnGpu::of(gpu, weights.norm),
            matrix: Matrix::new(gpu, weights.matrix)?,
            bias: weights.bias.map(|bias| gpu.floats("bias", bias)),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.matrix.bytes()
    }

    pub(crate) fn has_floats(&self) -> bool {
        self.matrix.has_floats()
    }
}

impl FfnOnGpu {
    pub(crate) fn new(gpu: &Gpu, weights: &FfnWeights<'_>) -> Result<Self, GpuError> {
        let Block::Dense { feed, norm } = weights.block else { return Err(GpuError::Model("it has experts")) };
        Ok(Self {
            output: Matrix::new(gpu, weights.output)?,
            output_bias: weights.output_bias.map(|bias| gpu.floats("bias", bias)),
            output_norm: weights.output_norm.map(|norm| NormOnGpu::plain(gpu, norm)),
            norm: NormOnGpu::of(gpu, weights.norm),
            gating: weights.gating,
            gate_up: Matrix::new(gpu, &feed.gate_up)?,
            down: Matrix::new(gpu, &feed.down)?,
            down_norm: norm.map(|norm| NormOnGpu::plain(gpu, norm)),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.output.bytes() + self.gate_up.bytes() + self.down.bytes()
    }

    pub(crate) fn has_floats(&self) -> bool {
        self.output.has_floats() || self.gate_up.has_floats() || self.down.has_floats()
    }
}

impl HeadOnGpu {
    pub(crate) fn new(gpu: &Gpu, weights: &HeadWeights<'_>) -> Result<Self, GpuError> {
        Ok(Self {
            norm: NormOnGpu::of(gpu, weights.norm),
            matrix: Matrix::new(gpu, weights.matrix)?,
            bias: weights.bias.map(|bias| gpu.floats("bias", bias)),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.matrix.bytes()
    }
}

/// What becomes of a product's results.
#[derive(Clone, Copy)]
enum Epilogue {
    Store,
    Add,
    Gated(Gating),
}

/// What launches of a pass have in common.
#[derive(Clone, Copy)]
pub(crate) struct Launcher<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) room: &'a Room,
    pub(crate) products: Products,
    /// Threads of a workgroup of products.
    pub(crate) width: usize,
}

impl Launcher<'_> {
    /// Norm and projection of rows of the residual stream, with bias.
    pub(crate) fn qkv(
        &self,
        to: &mut Recording<'_>,
        node: &QkvOnGpu,
        hidden: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        self.normed(to, &node.norm, &room.residual, &node.matrix, hidden, rows)?;
        self.product(to, &node.matrix, node.bias.as_ref(), &room.qkv, node.matrix.outputs, rows, Epilogue::Store)
    }

    /// Output projection, norm, and the gated block.
    pub(crate) fn feed_forward(
        &self,
        to: &mut Recording<'_>,
        node: &FfnOnGpu,
        (queries, hidden, ffn): (usize, usize, usize),
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        self.operands(to, None, &room.attended, &node.output, queries, rows)?;
        self.onto_residual(to, &node.output, node.output_bias.as_ref(), node.output_norm.as_ref(), hidden, rows)?;
        self.normed(to, &node.norm, &room.residual, &node.gate_up, hidden, rows)?;
        self.product(to, &node.gate_up, None, &room.gated, ffn, rows, Epilogue::Gated(node.gating))?;
        self.operands(to, None, &room.gated, &node.down, ffn, rows)?;
        self.onto_residual(to, &node.down, None, node.down_norm.as_ref(), hidden, rows)
    }

    /// A product of rows as they are, to the rows on their way through a norm: for tests.
    pub(crate) fn plain(
        &self,
        to: &mut Recording<'_>,
        matrix: &Matrix,
        values: &wgpu::Buffer,
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        self.operands(to, None, values, matrix, columns, rows)?;
        self.product(to, matrix, None, &self.room.normed, matrix.outputs, rows, Epilogue::Store)
    }

    /// Logits.
    pub(crate) fn head(
        &self,
        to: &mut Recording<'_>,
        node: &HeadOnGpu,
        hidden: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        self.normed(to, &node.norm, &room.residual, &node.matrix, hidden, rows)?;
        self.product(to, &node.matrix, node.bias.as_ref(), &room.logits, node.matrix.outputs, rows, Epilogue::Store)
    }

    /// Adds a product to the residual stream, by way of a norm where there is one.
    fn onto_residual(
        &self,
        to: &mut Recording<'_>,
        matrix: &Matrix,
        bias: Option<&wgpu::Buffer>,
        norm: Option<&NormOnGpu>,
        hidden: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        let Some(norm) = norm else {
            return self.product(to, matrix, bias, &room.residual, hidden, rows, Epilogue::Add);
        };
        self.product(to, matrix, None, &room.normed, hidden, rows, Epilogue::Store)?;
        self.moments(to, norm, &room.normed, hidden, rows)?;
        let pipeline = self.gpu.pipeline(&ADD_NORMED, 1, &[("COLUMNS", hidden as u32)])?;
        let buffers = [&room.normed, &room.moments, &norm.weight, &room.residual];
        to.launch(&pipeline, &buffers.map(whole), &[], Groups(hidden.div_ceil(64), rows));
        Ok(())
    }

    /// Normed rows, as products with a matrix read them.
    fn normed(
        &self,
        to: &mut Recording<'_>,
        norm: &NormOnGpu,
        values: &wgpu::Buffer,
        matrix: &Matrix,
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        self.moments(to, norm, values, columns, rows)?;
        self.operands(to, Some(norm), values, matrix, columns, rows)
    }

    /// Rows as products with a matrix read them.
    fn operands(
        &self,
        to: &mut Recording<'_>,
        norm: Option<&NormOnGpu>,
        values: &wgpu::Buffer,
        matrix: &Matrix,
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        if matrix.has_quants() {
            let form = if self.products == Products::Floats { 1 } else { 0 };
            self.rounded(to, norm, values, (form, &self.room.quants), columns, rows)?;
        }
        if matrix.has_floats() {
            self.rounded(to, norm, values, (2, &self.room.unrounded), columns, rows)?;
        }
        Ok(())
    }

    fn moments(
        &self,
        to: &mut Recording<'_>,
        norm: &NormOnGpu,
        values: &wgpu::Buffer,
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let constants = [("COLUMNS", columns as u32), ("CENTRED", norm.bias.is_some().into())];
        let pipeline = self.gpu.pipeline(&MOMENTS, 1, &constants)?;
        let buffers = [values, &self.room.moments].map(whole);
        to.launch(&pipeline, &buffers, &[norm.epsilon.to_bits()], Groups(rows, 1));
        Ok(())
    }

    /// Rows in a form that the shader numbers.
    fn rounded(
        &self,
        to: &mut Recording<'_>,
        norm: Option<&NormOnGpu>,
        values: &wgpu::Buffer,
        (form, quants): (u32, &wgpu::Buffer),
        columns: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        let norm_form = norm.map_or(0, |norm| if norm.bias.is_some() { 2 } else { 1 });
        let constants =
            [("COLUMNS", columns as u32), ("NORM", norm_form), ("FLOATS", form), ("STRIDE", columns as u32)];
        let pipeline = self.gpu.pipeline(&QUANTIZE, 1, &constants)?;
        // What is not read is bound all the same.
        let weight = norm.map_or(&room.moments, |norm| &norm.weight);
        let bias = norm.and_then(|norm| norm.bias.as_ref()).unwrap_or(weight);
        let buffers = [values, &room.moments, weight, bias, quants, &room.scales].map(whole);
        to.launch(&pipeline, &buffers, &[], Groups(columns.div_ceil(32 * 32), rows));
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "what a product reads and writes, each once")]
    fn product(
        &self,
        to: &mut Recording<'_>,
        matrix: &Matrix,
        bias: Option<&wgpu::Buffer>,
        out: &wgpu::Buffer,
        width: usize,
        rows: usize,
        epilogue: Epilogue,
    ) -> Result<(), GpuError> {
        let room = self.room;
        let tile = tile(rows);
        let (kind, gates) = match epilogue {
            Epilogue::Store => (0, 0),
            Epilogue::Add => (1, 0),
            Epilogue::Gated(by) => (2, gating(by)),
        };
        for slab in &matrix.slabs {
            let mut constants = slab.constants();
            constants.extend([
                ("GROUPS", matrix.groups as u32),
                ("WIDTH", self.width as u32),
                ("EPILOGUE", kind),
                ("GATING", gates),
                ("BIAS", bias.is_some().into()),
                ("STRIDE", width as u32),
            ]);
            let (first, outputs) = match epilogue {
                Epilogue::Gated(_) => (slab.first / 2, (width - slab.first / 2).min(slab.pairs * PANEL)),
                _ => (slab.first, slab.outputs),
            };
            let bias = bias.unwrap_or(&room.moments);
            let told = [rows as u32, slab.pairs as u32, first as u32, outputs as u32];
            let groups = Groups((slab.pairs * PANEL).div_ceil(self.width), rows.div_ceil(tile));
            if slab.form.is_float() {
                let pipeline = self.gpu.pipeline(&PRODUCT_FLOATS, tile as u32, &constants)?;
                to.launch(&pipeline, &[out, bias, &slab.quants, &room.unrounded].map(whole), &told, groups);
            } else {
                constants.push(("FLOATS", (self.products == Products::Floats).into()));
                let pipeline = self.gpu.pipeline(&PRODUCT, tile as u32, &constants)?;
                let buffers = [out, bias, &slab.quants, &slab.scales, &room.quants, &room.quants, &room.scales];
                to.launch(&pipeline, &buffers.map(whole), &told, groups);
            }
        }
        Ok(())
    }
}

/// Rows of a thread.
fn tile(rows: usize) -> usize {
    match rows {
        1 => 1,
        2..=4 => 4,
        _ => TILE_MAX,
    }
}

pub(crate) fn whole(buffer: &wgpu::Buffer) -> wgpu::BufferBinding<'_> {
    wgpu::BufferBinding { buffer, offset: 0, size: None }
}
