//! What the token-wise nodes of a layer are made of, launch by launch.

use crate::error::GpuError;
use crate::experts::ExpertsOnGpu;
use crate::gpu::Gpu;
use crate::matrix::{Matrix, WeightBytes};
use crate::prepared::Groups;
use crate::products::{Epilogue, Method, Product, RowsOf, Source};
use crate::recording::Recording;
use crate::room::Room;
use crate::shader::ADD_NORMED;
use crate::sharing::fetched;
use duet_kernels::fused::{Block, Feed, FfnWeights, HeadWeights, Norm, QkvWeights, RowNorm};
use duet_kernels::matmul::Gating;

/// The norm of rows.
#[derive(Debug)]
pub(crate) struct NormOnGpu {
    pub(crate) weight: wgpu::Buffer,
    pub(crate) bias: Option<wgpu::Buffer>,
    pub(crate) epsilon: f32,
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
    block: BlockOnGpu,
}

/// What is between its second norm and the residual stream.
#[derive(Debug)]
enum BlockOnGpu {
    Dense(DenseOnGpu),
    Experts(Box<ExpertsOnGpu>),
}

/// A gated block.
#[derive(Debug)]
pub(crate) struct DenseOnGpu {
    /// Its width.
    ffn: usize,
    pub(crate) gate_up: Matrix,
    pub(crate) down: Matrix,
    norm: Option<NormOnGpu>,
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

    pub(crate) fn bytes(&self) -> WeightBytes {
        self.matrix.bytes()
    }

    pub(crate) fn has_floats(&self) -> bool {
        self.matrix.has_floats()
    }
}

impl FfnOnGpu {
    pub(crate) fn new(gpu: &Gpu, weights: &FfnWeights<'_>) -> Result<Self, GpuError> {
        let block = match weights.block {
            Block::Dense { feed, norm } => BlockOnGpu::Dense(DenseOnGpu::new(gpu, feed, norm)?),
            Block::Experts(experts) => BlockOnGpu::Experts(Box::new(ExpertsOnGpu::new(gpu, &experts)?)),
        };
        Ok(Self {
            output: Matrix::new(gpu, weights.output)?,
            output_bias: weights.output_bias.map(|bias| gpu.floats("bias", bias)),
            output_norm: weights.output_norm.map(|norm| NormOnGpu::plain(gpu, norm)),
            norm: NormOnGpu::of(gpu, weights.norm),
            gating: weights.gating,
            block,
        })
    }

    pub(crate) fn bytes(&self) -> WeightBytes {
        let block = match &self.block {
            BlockOnGpu::Dense(block) => block.bytes(),
            BlockOnGpu::Experts(experts) => experts.bytes(),
        };
        [self.output.bytes(), block].into_iter().sum()
    }

    pub(crate) fn has_floats(&self) -> bool {
        let inner = match &self.block {
            BlockOnGpu::Dense(block) => block.has_floats(),
            // Their router is of floats.
            BlockOnGpu::Experts(_) => true,
        };
        inner || self.output.has_floats()
    }
}

impl DenseOnGpu {
    pub(crate) fn new(gpu: &Gpu, feed: &Feed, norm: Option<Norm<'_>>) -> Result<Self, GpuError> {
        Ok(Self {
            ffn: feed.down.inputs(),
            gate_up: Matrix::new(gpu, &feed.gate_up)?,
            down: Matrix::new(gpu, &feed.down)?,
            norm: norm.map(|norm| NormOnGpu::plain(gpu, norm)),
        })
    }

    pub(crate) fn bytes(&self) -> WeightBytes {
        [self.gate_up.bytes(), self.down.bytes()].into_iter().sum()
    }

    fn has_floats(&self) -> bool {
        self.gate_up.has_floats() || self.down.has_floats()
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

    pub(crate) fn bytes(&self) -> WeightBytes {
        self.matrix.bytes()
    }
}

/// What launches of a pass have in common.
#[derive(Clone, Copy)]
pub(crate) struct Launcher<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) room: &'a Room,
    pub(crate) method: Method,
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
        let source = Source { values: &room.residual, norm: Some(&node.norm), columns: hidden };
        self.multiplied(to, source, self.stored(&node.matrix, node.bias.as_ref(), &room.qkv, rows), rows)
    }

    /// Output projection, norm, and the gated block.
    pub(crate) fn feed_forward(
        &self,
        to: &mut Recording<'_>,
        node: &FfnOnGpu,
        (queries, hidden): (usize, usize),
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        let attended = Source { values: &room.attended, norm: None, columns: queries };
        let bias = node.output_bias.as_ref();
        self.onto_residual(to, attended, (&node.output, bias, node.output_norm.as_ref()), hidden, rows)?;
        let block = match &node.block {
            BlockOnGpu::Dense(block) => block,
            BlockOnGpu::Experts(experts) => {
                return self.experts(to, experts, (&node.norm, node.gating), hidden, rows);
            }
        };
        let residual = Source { values: &room.residual, norm: Some(&node.norm), columns: hidden };
        self.gated(to, residual, (&block.gate_up, node.gating), block.ffn, rows)?;
        let gated = Source { values: &room.gated, norm: None, columns: block.ffn };
        self.onto_residual(to, gated, (&block.down, None, block.norm.as_ref()), hidden, rows)
    }

    /// What gates let through of a product of all rows.
    pub(crate) fn gated(
        &self,
        to: &mut Recording<'_>,
        source: Source<'_>,
        (matrix, gating): (&Matrix, Gating),
        ffn: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let gated = self.stored(matrix, None, &self.room.gated, rows);
        self.multiplied(to, source, Product { width: ffn, epilogue: Epilogue::Gated(gating), ..gated }, rows)
    }

    /// A product of all rows that is written somewhere, as wide as it is.
    pub(crate) fn stored<'a>(
        &'a self,
        matrix: &'a Matrix,
        bias: Option<&'a wgpu::Buffer>,
        out: &'a wgpu::Buffer,
        rows: usize,
    ) -> Product<'a> {
        let (operands, rows) = (&self.room.operands, RowsOf::All(rows));
        Product { matrix, bias, operands, rows, out, width: matrix.outputs, epilogue: Epilogue::Store }
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
        let source = Source { values, norm: None, columns };
        self.multiplied(to, source, self.stored(matrix, None, &self.room.normed, rows), rows)
    }

    /// Logits of rows of the residual stream that are given.
    pub(crate) fn head(
        &self,
        to: &mut Recording<'_>,
        node: &HeadOnGpu,
        residual: &wgpu::Buffer,
        (hidden, rows): (usize, usize),
    ) -> Result<(), GpuError> {
        let source = Source { values: residual, norm: Some(&node.norm), columns: hidden };
        self.multiplied(to, source, self.stored(&node.matrix, node.bias.as_ref(), &self.room.logits, rows), rows)
    }

    /// Adds a product to the residual stream, by way of a norm where there is one.
    fn onto_residual(
        &self,
        to: &mut Recording<'_>,
        source: Source<'_>,
        (matrix, bias, norm): (&Matrix, Option<&wgpu::Buffer>, Option<&NormOnGpu>),
        hidden: usize,
        rows: usize,
    ) -> Result<(), GpuError> {
        let room = self.room;
        let Some(norm) = norm else {
            let added = self.stored(matrix, bias, &room.residual, rows);
            return self.multiplied(to, source, Product { width: hidden, epilogue: Epilogue::Add, ..added }, rows);
        };
        let stored = self.stored(matrix, None, &room.normed, rows);
        self.multiplied(to, source, Product { width: hidden, ..stored }, rows)?;
        let constants = [("COLUMNS", hidden as u32), ("CENTRED", 0), ("FETCHED", fetched(hidden) as u32)];
        let pipeline = self.gpu.pipeline(&ADD_NORMED, 1, &constants)?;
        let buffers = [&room.normed, &norm.weight, &room.residual];
        to.launch(&pipeline, &buffers.map(whole), &[norm.epsilon.to_bits()], Groups(rows, 1));
        Ok(())
    }
}

pub(crate) fn whole(buffer: &wgpu::Buffer) -> wgpu::BufferBinding<'_> {
    wgpu::BufferBinding { buffer, offset: 0, size: None }
}
