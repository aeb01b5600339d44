//! Memory of a GPU for the rows of a pass.

use crate::best;
use crate::error::GpuError;
use crate::experts::{ExpertRoom, ExpertWidths};
use crate::gpu::Gpu;
use duet_kernels::quantize::GROUP;

/// Buffers for so many rows.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) residual: wgpu::Buffer,
    pub(crate) attended: wgpu::Buffer,
    pub(crate) qkv: wgpu::Buffer,
    pub(crate) gated: wgpu::Buffer,
    /// Products on their way through a norm.
    pub(crate) normed: wgpu::Buffer,
    /// What is bound where nothing is read.
    pub(crate) spare: wgpu::Buffer,
    pub(crate) operands: Operands,
    pub(crate) logits: wgpu::Buffer,
    /// The best of each block of logits, and of each row.
    pub(crate) best_of_blocks: wgpu::Buffer,
    pub(crate) best: wgpu::Buffer,
    /// Of models that have experts.
    pub(crate) experts: Option<ExpertRoom>,
}

/// Rows as products read them.
#[derive(Debug)]
pub(crate) struct Operands {
    pub(crate) quants: wgpu::Buffer,
    pub(crate) scales: wgpu::Buffer,
    /// Rows that are not rounded, where there are matrices of floats.
    pub(crate) unrounded: wgpu::Buffer,
}

impl Operands {
    pub(crate) fn new(gpu: &Gpu, columns: usize, rows: usize, has_floats: bool) -> Self {
        let columns = columns.next_multiple_of(GROUP);
        let floats = |label, columns: usize| gpu.empty(label, rows * columns * 4);
        Self {
            // A float each where products are of floats, else a byte.
            quants: floats("row quants", columns),
            scales: floats("row scales", columns / GROUP * 4),
            unrounded: floats("unrounded", if has_floats { columns } else { 0 }),
        }
    }
}

/// The widths of a model, in values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    pub(crate) hidden: usize,
    pub(crate) qkv: usize,
    pub(crate) queries: usize,
    pub(crate) ffn: usize,
    pub(crate) vocabulary: usize,
    /// Whether any matrix has floats.
    pub(crate) has_floats: bool,
    pub(crate) experts: Option<ExpertWidths>,
}

/// Rows whose logits are computed together.
pub(crate) const HEAD_ROWS: usize = 16;

/// Rows of a pass that spans take at most: beyond them nodes are run one by one.
pub(crate) const SPAN_ROWS: usize = 512;

impl Room {
    /// What it takes for so many rows.
    pub(crate) fn bytes(widths: Widths, rows: usize) -> u64 {
        let rows = rows.next_multiple_of(crate::products::TILE_MAX);
        let widest = widths.hidden.max(widths.queries).max(widths.ffn).next_multiple_of(GROUP);
        let unrounded = if widths.has_floats { widest } else { 0 };
        let columns = 2 * widths.hidden + widths.queries + widths.qkv + widths.ffn + 2 + widest + unrounded;
        let scales = widest / GROUP * 4;
        let experts = widths.experts.map_or(0, |experts| ExpertRoom::bytes(experts, widths.hidden, rows));
        let best = best::words(best::blocks(widths.vocabulary) + 1);
        experts + (4 * (rows * (columns + scales) + HEAD_ROWS * (widths.vocabulary + best))) as u64
    }

    pub(crate) fn new(gpu: &Gpu, widths: Widths, rows: usize) -> Result<Self, GpuError> {
        let rows = rows.next_multiple_of(crate::products::TILE_MAX);
        let floats = |label, columns: usize| gpu.empty(label, rows * columns * 4);
        let widest = widths.hidden.max(widths.queries).max(widths.ffn);
        let room = Self {
            residual: floats("residual", widths.hidden),
            attended: floats("attended", widths.queries),
            qkv: floats("qkv", widths.qkv),
            gated: floats("gated", widths.ffn),
            normed: floats("normed", widths.hidden),
            spare: gpu.empty("spare", 16),
            operands: Operands::new(gpu, widest, rows, widths.has_floats),
            experts: widths.experts.map(|experts| ExpertRoom::new(gpu, experts, widths.hidden, rows)),
            logits: gpu.empty("logits", HEAD_ROWS * widths.vocabulary * 4),
            best_of_blocks: gpu.empty("best of blocks", HEAD_ROWS * best::words(best::blocks(widths.vocabulary)) * 4),
            best: gpu.empty("best", HEAD_ROWS * best::words(1) * 4),
        };
        gpu.check()?;
        Ok(room)
    }
}
