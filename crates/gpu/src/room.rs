//! Memory of a GPU for the rows of a pass.

use crate::error::GpuError;
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
    pub(crate) moments: wgpu::Buffer,
    pub(crate) quants: wgpu::Buffer,
    pub(crate) scales: wgpu::Buffer,
    /// Rows that are not rounded, where there are matrices of floats.
    pub(crate) unrounded: wgpu::Buffer,
    pub(crate) logits: wgpu::Buffer,
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
}

/// Rows whose logits are computed together.
pub(crate) const HEAD_ROWS: usize = 16;

impl Room {
    /// What it takes for so many rows.
    pub(crate) fn bytes(widths: Widths, rows: usize) -> u64 {
        let rows = rows.next_multiple_of(crate::nodes::TILE_MAX);
        let widest = widths.hidden.max(widths.queries).max(widths.ffn).next_multiple_of(GROUP);
        let unrounded = if widths.has_floats { widest } else { 0 };
        let columns = 2 * widths.hidden + widths.queries + widths.qkv + widths.ffn + 2 + widest + unrounded;
        let scales = widest / GROUP * 4;
        (4 * (rows * (columns + scales) + HEAD_ROWS * widths.vocabulary)) as u64
    }

    pub(crate) fn new(gpu: &Gpu, widths: Widths, rows: usize) -> Result<Self, GpuError> {
        let rows = rows.next_multiple_of(crate::nodes::TILE_MAX);
        let floats = |label, columns: usize| gpu.empty(label, rows * columns * 4);
        let widest = widths.hidden.max(widths.queries).max(widths.ffn).next_multiple_of(GROUP);
        let room = Self {
            residual: floats("residual", widths.hidden),
            attended: floats("attended", widths.queries),
            qkv: floats("qkv", widths.qkv),
            gated: floats("gated", widths.ffn),
            normed: floats("normed", widths.hidden),
            moments: floats("moments", 2),
            // A float each where products are of floats, else a byte.
            quants: floats("row quants", widest),
            scales: floats("row scales", widest / GROUP * 4),
            unrounded: floats("unrounded", if widths.has_floats { widest } else { 0 }),
            logits: gpu.empty("logits", HEAD_ROWS * widths.vocabulary * 4),
        };
        gpu.check()?;
        Ok(room)
    }
}
