//! The self-test: products of packed weights of several forms with a few rows, on a GPU, beside the definition of
//! [`duet_kernels::matmul`] written out.
//!
//! A driver that compiles a shader to something else, or does not have the features that it says it has, is found here
//! before a model is. Sums of groups are integers, and have to be right to the last one; what they are scaled and added with
//! may be rounded otherwise ([`Fusing`]).

use crate::adapters::{Adapter, CacheAccess};
use crate::error::GpuError;
use crate::fusing::Fusing;
use crate::gpu::Gpu;
use crate::matrix::Matrix;
use crate::nodes::Launcher;
use crate::products::{Method, Products, TILE_COUNT, TILE_MAX};
use crate::recording::Recording;
use crate::room::{Room, Widths};
use crate::staging::Staging;
use duet_kernels::packed::{Form, Packable, PackedMatrix, WeightGroup};
use duet_kernels::quantize::GROUP;
use duet_types::Nanos;
use std::time::Instant;

/// A self-test that was passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfTest {
    /// Opening the device and compiling the shaders.
    pub compile: Nanos,
    /// A product.
    pub inference: Nanos,
    /// How far results were from the definition: the root mean square of the differences, in that of the results.
    pub off: f64,
    /// How products are added.
    pub fusing: Fusing,
    /// How it comes to keys and values.
    pub cache_access: CacheAccess,
}

/// Runs products of a few forms on an adapter, and checks what comes out.
///
/// # Errors
/// Whatever keeps the adapter from it; [`GpuError::Wrong`] if it computes something else.
pub fn self_test(adapter: &Adapter) -> Result<SelfTest, GpuError> {
    let began = Instant::now();
    let gpu = Gpu::open(adapter)?;
    // Tiles of rows, one row, whose groups threads share out, and rows enough for tiles that are shared.
    let trials = [9, 1, 2 * TILE_MAX + 1].map(|rows| Trial::new(Form::Q4K, 48, 3, rows));
    let (fusing, cache_access) = (gpu.fusing, gpu.cache_access());
    let mut tested = SelfTest { compile: Nanos::ZERO, inference: Nanos::ZERO, off: 0.0, fusing, cache_access };
    for (products, trial) in
        [Products::Bytes, Products::Floats].into_iter().flat_map(|by| trials.iter().map(move |t| (by, t)))
    {
        let on_gpu = trial.on(&gpu)?;
        let mut method = Method { products, width: 16, rounds_within: usize::MAX, ..Method::FIRST };
        // One workgroup has all panels in turns.
        (method.split, method.workgroups) = ([4; TILE_COUNT], [1; TILE_COUNT]);
        method.tiled.small = 0;
        on_gpu.run(method)?;
        tested.compile = began.elapsed().into();
        let again = Instant::now();
        let found = on_gpu.run(method)?;
        tested.inference = again.elapsed().into();
        tested.off = tested.off.max(distance(&found, &trial.expected()));
    }
    if tested.off <= TOLERANCE { Ok(tested) } else { Err(GpuError::Wrong { off: tested.off, tolerance: TOLERANCE }) }
}

/// Rounding of some sums of a dozen numbers.
const TOLERANCE: f64 = 1e-5;

/// A matrix of one form, and rows.
pub(crate) struct Trial {
    form: Form,
    columns: usize,
    outputs: usize,
    groups: Vec<Packable>,
    values: Vec<f32>,
}

/// The same on a GPU.
pub(crate) struct TrialOnGpu<'a> {
    trial: &'a Trial,
    gpu: &'a Gpu,
    matrix: Matrix,
    room: Room,
    values: wgpu::Buffer,
}

impl Trial {
    /// Numbers that are the same each time.
    pub(crate) fn new(form: Form, outputs: usize, groups: usize, rows: usize) -> Self {
        let mut numbers = Numbers(7);
        let columns = groups * GROUP;
        let group = |numbers: &mut Numbers| {
            if form.is_float() {
                return Packable::Floats(std::array::from_fn(|_| numbers.below(255) as f32 / 64.0 - 2.0));
            }
            let bits = form.bits().min(8) as u32;
            // Halves of which scales are made are exact.
            let half = |numbers: &mut Numbers| (numbers.below(512) as f32 + 1.0) / 4096.0;
            Packable::Quants(WeightGroup {
                scale: half(numbers),
                min: -half(numbers),
                small: [numbers.below(64) as u8, numbers.below(64) as u8],
                quants: std::array::from_fn(|_| numbers.below(1 << bits) as u8),
            })
        };
        let mut made: Vec<Packable> = (0..outputs * groups).map(|_| group(&mut numbers)).collect();
        // Groups of a block of 256 share what the file has once for all of them.
        let blocks = if form.has_small_scales() { 8 } else { 1 };
        for index in 0..made.len() {
            let first = index - index % groups % blocks;
            if let (Packable::Quants(from), Packable::Quants(to)) = (made[first], &mut made[index]) {
                (to.scale, to.min) = (from.scale, from.min);
            }
        }
        let values = (0..rows * columns).map(|_| numbers.below(2001) as f32 / 500.0 - 2.0).collect();
        Self { form, columns, outputs, groups: made, values }
    }

    pub(crate) fn on<'a>(&'a self, gpu: &'a Gpu) -> Result<TrialOnGpu<'a>, GpuError> {
        let groups = self.columns / GROUP;
        let packed = PackedMatrix::new(self.outputs, self.columns, self.form, |output, index| {
            self.groups[output * groups + index]
        });
        let packed = packed.map_err(|_| GpuError::Model("a scale is out of range"))?;
        let widths = Widths {
            hidden: self.columns.max(self.outputs),
            qkv: 0,
            queries: 0,
            ffn: 0,
            vocabulary: 0,
            has_floats: true,
            experts: None,
        };
        let (matrix, room) = (Matrix::new(gpu, &packed)?, Room::new(gpu, widths, self.rows())?);
        Ok(TrialOnGpu { trial: self, gpu, matrix, room, values: gpu.floats("trial", &self.values) })
    }

    fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// What the product is by definition.
    pub(crate) fn expected(&self) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.columns);
        rows.flat_map(|row| (0..self.outputs).map(move |output| self.dot(row, output))).collect()
    }

    fn dot(&self, row: &[f32], output: usize) -> f32 {
        let add = f32::mul_add;
        let groups = self.groups[output * self.columns / GROUP..].iter();
        let mut sum = 0.0;
        for (values, group) in row.as_chunks::<GROUP>().0.iter().zip(groups) {
            match group {
                Packable::Floats(weights) => {
                    sum = values.iter().zip(weights).fold(sum, |sum, (x, w)| add(*w, *x, sum));
                }
                Packable::Quants(group) => {
                    for (scale, value) in self.scaled(values, group) {
                        sum = add(scale, value, sum);
                    }
                }
            }
        }
        if self.form.is_float() { sum } else { sum * UNIT }
    }

    /// What a group adds to a sum: factor and value, in order. (`matmul/mod.rs`)
    fn scaled(&self, values: &[f32; GROUP], group: &WeightGroup) -> Vec<(f32, f32)> {
        let (form, largest) = (self.form, values.iter().fold(0.0_f32, |largest, x| largest.max(x.abs())));
        let (scale, inverse) = (largest / 127.0, 127.0 / largest);
        let rounded = values.map(|x| (x * inverse).round_ties_even() as i32);
        let parts = if matches!(form, Form::Q2K | Form::Q3K | Form::Q6K) { 2 } else { 1 };
        let mut added = Vec::new();
        for part in 0..parts {
            let (small, small_min) = match (form, group.small) {
                (Form::Q4K | Form::Q5K, [s, n]) => (i32::from(s), i32::from(n)),
                (Form::Q2K, small) => (i32::from(small[part] & 15), i32::from(small[part] >> 4)),
                (Form::Q3K | Form::Q6K, small) => (i32::from(small[part] as i8), 0),
                (Form::IQ4XS, [s, _]) => (i32::from(s as i8), 0),
                _ => (1, 1),
            };
            let inputs = part * GROUP / parts..(part + 1) * GROUP / parts;
            let zero = if form.has_min() { 0 } else { i32::from(form.zero()) };
            let weight = |q: u8| form.table().map_or(i32::from(q) - zero, |table| i32::from(table[usize::from(q)]));
            let dot: i32 = inputs.clone().map(|i| weight(group.quants[i]) * rounded[i]).sum();
            added.push((group.scale / UNIT * small as f32 * dot as f32, scale));
            if form.has_min() {
                let sum: i32 = inputs.map(|i| rounded[i]).sum();
                added.push((group.min / UNIT * small_min as f32, scale * sum as f32));
            }
        }
        added
    }
}

/// `kernels/src/packed`: scales are stored in this unit.
const UNIT: f32 = 1.0 / 1024.0;

impl TrialOnGpu<'_> {
    /// The product.
    pub(crate) fn run(&self, method: Method) -> Result<Vec<f32>, GpuError> {
        let Self { trial, gpu, matrix, room, values } = self;
        let launcher = Launcher { gpu, room, method };
        let mut recording = Recording::new(gpu);
        launcher.plain(&mut recording, matrix, values, trial.columns, trial.rows())?;
        let mut found = vec![0.0; trial.rows() * trial.outputs];
        let from = [(&room.normed, found.len())];
        Staging::default().read_after(gpu, recording, &from, &mut found)?;
        Ok(found)
    }
}

fn distance(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x).powi(2);
    let far: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    (far / expected.iter().copied().map(square).sum::<f64>()).sqrt()
}

/// Numbers that look random: an xorshift.
pub(crate) struct Numbers(pub(crate) u32);

impl Numbers {
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        for shift in [13, -17, 5_i32] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        self.0 % end
    }
}

/// The adapter that tests use; see `tests/common`.
#[cfg(test)]
pub(crate) fn opened() -> Option<Gpu> {
    use duet_testing::Need;
    let found = crate::adapters::Adapters::look();
    let name = std::env::var(Need::Gpu.variable()).unwrap_or_else(|_| "gpu:0".to_owned());
    match found.named(&name).and_then(Gpu::open) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            duet_testing::skip(Need::Gpu, error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::Adapters;
    use crate::nodes::NormOnGpu;
    use crate::products::Source;
    use crate::tiled::Tiled;

    /// By whatever adds products on this adapter: to the bit where it rounds once, and nearly as an adapter does that rounds
    /// product and sum.
    #[test]
    fn products_of_all_forms_have_the_bits_of_their_definition() {
        let Some(mut gpu) = opened() else { return };
        let same =
            |found: &[f32], expected: &[f32]| found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
        for form in Form::ALL {
            // Outputs that are no whole pair of panels, groups that are no whole block, rows that are no whole tile.
            let trial = Trial::new(form, 70, 11, 13);
            let one_row = Trial::new(form, 70, 11, 1);
            for (products, width, split, rounds_within) in [
                (Products::Bytes, 16, 1, 0),
                (Products::Bytes, 16, 4, 0),
                (Products::Bytes, 16, 8, usize::MAX),
                (Products::Floats, 16, 1, 0),
                (Products::Floats, 64, 8, usize::MAX),
            ] {
                let mut method = Method { products, width, rounds_within, ..Method::FIRST };
                // Of three pairs of panels a workgroup has two.
                (method.split, method.workgroups) = ([split; TILE_COUNT], [2; TILE_COUNT]);
                for trial in [&trial, &one_row] {
                    let found = trial.on(&gpu).unwrap().run(method).unwrap();
                    let (expected, off) = (trial.expected(), distance(&found, &trial.expected()));
                    let is_right = if gpu.fusing.is_exact() { same(&found, &expected) } else { off <= TOLERANCE };
                    assert!(is_right, "{form:?} by {method:?}: {off} off");
                }
            }
        }
        for form in Form::ALL.into_iter().filter(|form| !form.is_float()) {
            // Two tiles of either size, of which the last has few rows.
            let trial = Trial::new(form, 70, 11, 67);
            let expected = trial.expected();
            for tiled in [Tiled { small: 0, large: usize::MAX }, Tiled { small: 0, large: 0 }] {
                let (on_gpu, method) = (trial.on(&gpu).unwrap(), Method { tiled, ..Method::FIRST });
                let launcher = Launcher { gpu: &gpu, room: &on_gpu.room, method };
                assert!(launcher.tiled(&on_gpu.matrix.slabs[0], trial.rows()).is_some());
                let found = on_gpu.run(method).unwrap();
                let off = distance(&found, &expected);
                let is_right = if gpu.fusing.is_exact() { same(&found, &expected) } else { off <= TOLERANCE };
                assert!(is_right, "{form:?} by {tiled:?}: {off} off");
            }
        }
        gpu.fusing = Fusing::Apart;
        let trial = Trial::new(Form::Q4K, 70, 11, 13);
        let found = trial.on(&gpu).unwrap().run(Method::FIRST).unwrap();
        assert!(distance(&found, &trial.expected()) <= TOLERANCE);
    }

    /// Rows as bytes, and their scales, have the bits of their definition.
    #[test]
    fn rows_are_rounded_as_on_the_cores() {
        let Some(gpu) = opened().filter(|gpu| gpu.fusing.is_exact()) else { return };
        let trial = Trial::new(Form::Q8_0, 70, 11, 13);
        let TrialOnGpu { room, values, .. } = trial.on(&gpu).unwrap();
        let launcher = Launcher { gpu: &gpu, room: &room, method: Method::FIRST };
        let mut recording = Recording::new(&gpu);
        let (quants, scales) = (&room.operands.quants, &room.operands.scales);
        let source = Source { values: &values, norm: None, columns: trial.columns };
        launcher.rounded(&mut recording, source, (0, quants, scales), trial.rows()).unwrap();
        let groups = trial.values.len() / GROUP;
        let mut found = vec![0.0; groups * 12];
        let from = [(quants, groups * 8), (scales, groups * 4)];
        Staging::default().read_after(&gpu, recording, &from, &mut found).unwrap();
        let (quants, scales) = found.split_at(groups * 8);
        let quants: &[i8] = bytemuck::cast_slice(quants);
        for (index, group) in trial.values.as_chunks::<GROUP>().0.iter().enumerate() {
            let largest = group.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            let (scale, inverse) = (largest / 127.0, 127.0 / largest);
            let wanted = group.map(|x| (x * inverse).round_ties_even() as i8);
            assert_eq!(quants[index * GROUP..][..GROUP], wanted, "group {index}");
            let sum = wanted.iter().map(|&q| f32::from(q)).sum::<f32>();
            let found: [u32; 2] = [scales[index * 4].to_bits(), scales[index * 4 + 1].to_bits()];
            assert_eq!(found, [scale.to_bits(), (scale * sum).to_bits()], "scale of group {index}, {largest}");
        }
    }

    /// A row is normed and rounded to the same bits by a launch before and by each workgroup: also one of numbers that are none.
    #[test]
    fn a_row_is_normed_and_rounded_alike_by_whom_ever() {
        let Some(gpu) = opened().filter(|gpu| gpu.fusing.is_exact()) else { return };
        let mut trial = Trial::new(Form::Q6K, 70, 40, 1);
        for strange in [None, Some(f32::NAN), Some(f32::INFINITY)] {
            trial.values[700] = strange.unwrap_or(trial.values[700]);
            let on_gpu = trial.on(&gpu).unwrap();
            let weights: Vec<f32> = trial.values.iter().rev().map(|x| x.max(-1.0) + 1.5).collect();
            let norm = NormOnGpu { weight: gpu.floats("norm", &weights), bias: None, epsilon: 1e-5 };
            let [before, within] = [trial.columns - 1, trial.columns].map(|rounds_within| {
                let method = Method { split: [8; TILE_COUNT], rounds_within, ..Method::FIRST };
                let launcher = Launcher { gpu: &gpu, room: &on_gpu.room, method };
                let source = Source { values: &on_gpu.values, norm: Some(&norm), columns: trial.columns };
                assert_eq!(launcher.rounds_within(source, &on_gpu.matrix), rounds_within == trial.columns);
                let product = launcher.stored(&on_gpu.matrix, None, &on_gpu.room.normed, 1);
                let mut recording = Recording::new(&gpu);
                launcher.multiplied(&mut recording, source, product, 1).unwrap();
                let mut found = vec![0.0_f32; trial.outputs];
                let from = [(&on_gpu.room.normed, found.len())];
                Staging::default().read_after(&gpu, recording, &from, &mut found).unwrap();
                found.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert_eq!(before, within, "{strange:?}");
        }
    }

    #[test]
    fn what_exceeds_a_binding_is_cut() {
        let Some(mut gpu) = opened() else { return };
        let trial = Trial::new(Form::Q8_0, 200, 4, 5);
        let whole = trial.on(&gpu).unwrap().run(Method::FIRST).unwrap();
        gpu.binding_max = 3 * 2 * 16 * 4 * 32;
        let cut = trial.on(&gpu).unwrap();
        assert_eq!(cut.matrix.slabs.len(), 3);
        assert_eq!(cut.run(Method::FIRST).unwrap(), whole);
        gpu.binding_max = 100;
        assert!(matches!(trial.on(&gpu), Err(GpuError::TooLarge { .. })));
    }

    /// Slabs of weights that are read where they are begin where bindings may, and have the bits of one that is copied whole.
    #[test]
    fn what_exceeds_a_binding_is_cut_where_it_is() {
        let Some(mut gpu) = opened().filter(|gpu| gpu.host_memory.is_some()) else { return };
        let trial = Trial::new(Form::Q8_0, 2080, 32, 5);
        let sharing = gpu.host_memory.take();
        let whole = trial.on(&gpu).unwrap().run(Method::FIRST).unwrap();
        gpu.host_memory = sharing;
        gpu.binding_max = 700_000;
        let cut = trial.on(&gpu).unwrap();
        let shared: Vec<u64> = cut.matrix.slabs.iter().map(|slab| slab.quants.shared()).collect();
        assert!(shared.len() == 4 && shared.iter().all(|&bytes| bytes > 0), "{shared:?}");
        assert_eq!(cut.run(Method::FIRST).unwrap(), whole);
    }

    #[test]
    fn the_self_test_is_passed() {
        let found = Adapters::look();
        if let Some(adapter) = found.all().iter().find(|adapter| found.named(&adapter.name).is_ok()) {
            let tested = self_test(adapter).unwrap();
            assert!(tested.off <= TOLERANCE && tested.inference > Nanos::ZERO, "{tested:?}");
        }
    }
}
