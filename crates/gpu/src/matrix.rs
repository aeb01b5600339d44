//! Packed matrices as a GPU has them: the bytes that the CPU's kernels read, copied or where they are.
//!
//! What exceeds a binding is cut between pairs of panels, and each slab is a launch of its own.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::weights_in_place::Panels;
use duet_kernels::matmul::Gating;
use duet_kernels::packed::{Form, PANEL, PANELS_TOGETHER, PackedMatrix, PackedPart};
use std::iter::Sum;

/// A matrix.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) groups: usize,
    /// Outputs of the product.
    pub(crate) outputs: usize,
    pub(crate) slabs: Vec<Slab>,
}

/// Some pairs of its panels, all of one form.
#[derive(Debug)]
pub(crate) struct Slab {
    pub(crate) form: Form,
    pub(crate) pairs: usize,
    /// The first of its outputs.
    pub(crate) first: usize,
    pub(crate) outputs: usize,
    pub(crate) quants: Panels,
    pub(crate) scales: Panels,
}

/// Pairs of panels whose bytes are a multiple of what a binding begins at, whatever adapter it is.
const PAIRS_ALIGNED: usize = 4;

/// What weights take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeightBytes {
    /// Of the GPU's own memory.
    pub(crate) copied: u64,
    /// Where the cores have them.
    pub(crate) shared: u64,
}

impl Sum for WeightBytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self { copied: sum.copied + one.copied, shared: sum.shared + one.shared })
    }
}

/// Outputs of a pair of panels.
pub(crate) const PAIR: usize = PANELS_TOGETHER * PANEL;

impl Matrix {
    /// Brings a matrix there.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn new(gpu: &Gpu, matrix: &PackedMatrix) -> Result<Self, GpuError> {
        let (mut slabs, mut first) = (Vec::new(), 0);
        for part in matrix.parts() {
            slabs.extend(cut(gpu, &part, first)?);
            first += part.outputs;
        }
        gpu.check()?;
        Ok(Self { groups: matrix.groups(), outputs: matrix.outputs(), slabs })
    }

    /// Brings the matrices of experts there, one after the other: a product names the expert.
    ///
    /// # Errors
    /// If they are not alike, or exceed a binding together.
    pub(crate) fn of_experts<'a>(
        gpu: &Gpu,
        matrices: impl ExactSizeIterator<Item = &'a PackedMatrix> + Clone,
    ) -> Result<Self, GpuError> {
        const UNLIKE: GpuError = GpuError::Model("weights of its experts are of several types");
        let first = matrices.clone().next().ok_or(UNLIKE)?;
        let [part] = first.parts().collect::<Vec<_>>().try_into().map_err(|_| UNLIKE)?;
        let (one, count) = ([part.quants.len(), part.scales.len()], matrices.len());
        let limit = gpu.binding_max;
        if let Some(bytes) = one.map(|one| (one * count) as u64).into_iter().find(|&bytes| bytes > limit) {
            return Err(GpuError::TooLarge { what: "a layer's experts", bytes, limit });
        }
        let mut bytes = [Vec::with_capacity(count), Vec::with_capacity(count)];
        for matrix in matrices {
            let [own] = matrix.parts().collect::<Vec<_>>().try_into().map_err(|_| UNLIKE)?;
            if own.form != part.form || [own.quants.len(), own.scales.len()] != one {
                return Err(UNLIKE);
            }
            bytes[0].push(own.quants);
            bytes[1].push(own.scales);
        }
        let [quants, scales] = bytes;
        let regions = part.regions();
        let quants = gpu.panels_of_experts(&quants, regions[0].as_ref());
        let scales = gpu.panels_of_experts(&scales, regions[1].as_ref());
        gpu.check()?;
        let pairs = part.outputs.div_ceil(PAIR);
        let slab = Slab { form: part.form, pairs, first: 0, outputs: part.outputs, quants, scales };
        Ok(Self { groups: first.groups(), outputs: first.outputs(), slabs: vec![slab] })
    }

    /// Bytes of the GPU's own memory, and bytes that the cores read as well.
    pub(crate) fn bytes(&self) -> WeightBytes {
        let panels = self.slabs.iter().flat_map(|slab| [&slab.quants, &slab.scales]);
        panels.map(|panels| WeightBytes { copied: panels.copied(), shared: panels.shared() }).sum()
    }

    /// Whether products with it read rows that are not rounded.
    pub(crate) fn has_floats(&self) -> bool {
        self.slabs.iter().any(|slab| slab.form.is_float())
    }

    /// Whether products with it read rows as bytes.
    pub(crate) fn has_quants(&self) -> bool {
        self.slabs.iter().any(|slab| !slab.form.is_float())
    }
}

/// A section in slabs that fit a binding each.
fn cut(gpu: &Gpu, part: &PackedPart<'_>, first: usize) -> Result<Vec<Slab>, GpuError> {
    let pairs = part.outputs.div_ceil(PAIR);
    let [quants, scales] = [part.quants.len() / pairs.max(1), part.scales.len() / pairs.max(1)];
    let regions = part.regions();
    let limit = gpu.slab_max(regions[0].as_ref());
    let together = match (limit as usize / quants.max(scales).max(1)).min(pairs) {
        0 => {
            let bytes = quants as u64;
            return Err(GpuError::TooLarge { what: "a pair of panels", bytes, limit });
        }
        // The next ones begin where a binding may, too.
        cut if (PAIRS_ALIGNED..pairs).contains(&cut) && regions[0].is_some() => cut / PAIRS_ALIGNED * PAIRS_ALIGNED,
        whole => whole,
    };
    let slab = |from: usize| {
        let to = (from + together).min(pairs);
        let panels = |label, bytes: &[u8], one: usize, region| gpu.panels(label, &bytes[from * one..to * one], region);
        Slab {
            form: part.form,
            pairs: to - from,
            first: first + from * PAIR,
            outputs: (to * PAIR).min(part.outputs) - from * PAIR,
            quants: panels("quants", part.quants, quants, regions[0].as_ref()),
            scales: panels("scales", part.scales, scales, regions[1].as_ref()),
        }
    };
    Ok((0..pairs).step_by(together).map(slab).collect())
}

impl Slab {
    /// What the shader of products is to know of the form.
    pub(crate) fn constants(&self) -> Vec<(&'static str, u32)> {
        let form = self.form;
        if form.is_float() {
            return vec![("BITS", if form == Form::BF16 { 17 } else { form.bits() as u32 })];
        }
        let small = match form {
            Form::IQ4XS => 1,
            _ if form.has_small_scales() => 2,
            _ => 0,
        };
        let table = match form {
            Form::IQ4NL | Form::IQ4XS => 1,
            Form::MXFP4 => 2,
            _ => 0,
        };
        let zero = if form.has_min() { 0 } else { form.zero().into() };
        vec![
            ("BITS", form.bits() as u32),
            ("ZERO", zero),
            ("TABLE", table),
            ("MIN", form.has_min().into()),
            ("PARTS", parts(form) as u32),
            ("SMALL", small),
            ("NIBBLES", (form == Form::Q2K).into()),
            ("SIGNED", matches!(form, Form::Q3K | Form::Q6K | Form::IQ4XS).into()),
        ]
    }
}

/// Parts of a group that have scales of their own.
pub(crate) fn parts(form: Form) -> usize {
    if matches!(form, Form::Q2K | Form::Q3K | Form::Q6K) { 2 } else { 1 }
}

/// The number of a nonlinearity in the shader of products.
pub(crate) fn gating(gating: Gating) -> u32 {
    match gating {
        Gating::Silu => 0,
        Gating::GeluTanh => 1,
        Gating::ClampedSwish => 2,
    }
}

impl Gpu {
    /// A buffer that shaders read, with these bytes.
    pub(crate) fn filled(&self, label: &'static str, bytes: &[u8]) -> wgpu::Buffer {
        let buffer = self.empty(label, bytes.len());
        self.write(&buffer, 0, bytes);
        buffer
    }

    /// Brings weights to a place in a buffer.
    pub(crate) fn write(&self, buffer: &wgpu::Buffer, at: u64, bytes: &[u8]) {
        // Only what was allocated can be written to; that it was not is told by the next check.
        if self.check().is_ok() {
            let whole = bytes.len() / 4 * 4;
            self.queue.write_buffer(buffer, at, &bytes[..whole]);
            // Weights lie in the queue's own memory until they are submitted: little of them at a time.
            self.queue.submit([]);
        }
    }

    /// The same of floats.
    pub(crate) fn floats(&self, label: &'static str, floats: &[f32]) -> wgpu::Buffer {
        self.filled(label, bytemuck::cast_slice(floats))
    }

    /// A buffer that shaders read and write, of zeros.
    pub(crate) fn empty(&self, label: &'static str, bytes: usize) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: (bytes.max(16)).next_multiple_of(16) as u64,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        })
    }
}
