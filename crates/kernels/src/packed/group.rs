//! One group of 32 weights: where its quants stand in a panel's registers, and what they mean; or where its floats stand.

use super::Form;
use crate::quantize::GROUP;
use crate::simd::LANES;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// Thirty-two weights of one output, as they are to be packed.
#[derive(Clone, Copy, Debug)]
pub enum Packable {
    /// For a form with quants.
    Quants(WeightGroup),
    /// For a form of floats, which takes them if they are its own: what it cannot hold is rounded.
    Floats([f32; GROUP]),
}

impl From<WeightGroup> for Packable {
    fn from(group: WeightGroup) -> Self {
        Self::Quants(group)
    }
}

impl From<[f32; GROUP]> for Packable {
    fn from(floats: [f32; GROUP]) -> Self {
        Self::Floats(floats)
    }
}

/// The quants and scales of thirty-two weights of one output, none multiplied with another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightGroup {
    /// `d` of [`Form`]: the group's own, or that of the 256 weights that it is a part of.
    pub scale: f32,
    /// `m` of [`Form`], likewise; ignored by forms without one.
    pub min: f32,
    /// The small scales of forms that have them: `[s, n]`; or, where each half of the group has its own, one byte for each
    /// half: `s` as a signed byte, or `s` in the low and `n` in the high nibble; or one signed byte for all.
    pub small: [u8; 2],
    /// See [`Form`].
    pub quants: [u8; GROUP],
}

impl WeightGroup {
    /// Zeros.
    #[must_use]
    pub fn zeros(form: Form) -> Self {
        // Any number of a value is right: the scale is zero.
        let zero = if form.has_min() || form.table().is_some() { 0 } else { form.zero() };
        Self { scale: 0.0, min: 0.0, small: [0; 2], quants: [zero; GROUP] }
    }

    /// Eight-bit quants of `weights` (at most 32; the rest are zero) in [`Form::Q8_0`].
    #[must_use]
    pub fn quantize(weights: &[f32]) -> Self {
        let largest = weights.iter().fold(0.0_f32, |largest, w| largest.max(w.abs()));
        let scale = largest / 127.0;
        let inverse = if scale > 0.0 { scale.recip() } else { 0.0 };
        let mut quants = [128; GROUP];
        for (q, w) in quants.iter_mut().zip(weights) {
            *q = ((w * inverse).round_ties_even().clamp(-127.0, 127.0) as i32 + 128) as u8;
        }
        Self { scale, min: 0.0, small: [0; 2], quants }
    }
}

/// Some bits of all quants of a group: the bits from `from` on lie in registers from `register` on, those of the inputs
/// `4i..4i + 4` above those of the four before them until a byte is full.
struct Plane {
    register: usize,
    bits: usize,
    from: usize,
}

/// The planes of quants of so many bits.
const fn planes_of(bits: usize) -> &'static [Plane] {
    const fn plane(register: usize, bits: usize, from: usize) -> Plane {
        Plane { register, bits, from }
    }
    match bits {
        2 => const { &[plane(0, 2, 0)] },
        3 => const { &[plane(0, 2, 0), plane(2, 1, 2)] },
        4 => const { &[plane(0, 4, 0)] },
        5 => const { &[plane(0, 4, 0), plane(4, 1, 4)] },
        6 => const { &[plane(0, 4, 0), plane(4, 2, 4)] },
        _ => const { &[plane(0, 8, 0)] },
    }
}

impl Plane {
    /// Where the bits of step `step` stand for the output of lane `lane`: the first of four bytes, and the bit in each.
    fn place(&self, step: usize, lane: usize) -> (usize, usize) {
        let steps = 8 / self.bits;
        ((self.register + step / steps) * 64 + lane * 4, step % steps * self.bits)
    }

    /// The bits of a quant that it holds, once they are shifted down.
    const fn mask(&self) -> u8 {
        u8::MAX >> (8 - self.bits)
    }
}

/// Puts the quants of an output into a group's registers.
#[inline(always)]
pub(super) fn set_quants(form: Form, registers: &mut [u8], lane: usize, quants: &[u8; GROUP]) {
    // The planes are known where this is inlined, so that all loops are unrolled.
    match form.bits() {
        2 => set_planes(const { planes_of(2) }, registers, lane, quants),
        3 => set_planes(const { planes_of(3) }, registers, lane, quants),
        4 => set_planes(const { planes_of(4) }, registers, lane, quants),
        5 => set_planes(const { planes_of(5) }, registers, lane, quants),
        6 => set_planes(const { planes_of(6) }, registers, lane, quants),
        _ => set_planes(const { planes_of(8) }, registers, lane, quants),
    }
}

#[inline(always)]
fn set_planes(planes: &[Plane], registers: &mut [u8], lane: usize, quants: &[u8; GROUP]) {
    let fours = quants.as_chunks::<4>().0;
    for plane in planes {
        let mask = u32::from_ne_bytes([plane.mask(); 4]);
        let steps = 8 / plane.bits;
        for (register, fours) in fours.chunks_exact(steps).enumerate() {
            let mut bits = 0;
            for (step, four) in fours.iter().enumerate() {
                // Four bytes at once: none is shifted beyond its own bits.
                bits |= (u32::from_ne_bytes(*four) >> plane.from & mask) << (step * plane.bits);
            }
            let at = (plane.register + register) * 64 + lane * 4;
            registers[at..at + 4].copy_from_slice(&bits.to_ne_bytes());
        }
    }
}

/// The quant of an input.
pub(super) fn quant(form: Form, registers: &[u8], lane: usize, input: usize) -> u8 {
    let part = |plane: &Plane| {
        let (at, shift) = plane.place(input / 4, lane);
        (registers[at + input % 4] >> shift & plane.mask()) << plane.from
    };
    planes_of(form.bits()).iter().map(part).sum()
}

/// What a quant says: input `input` of a group with these scales.
pub(super) fn weight(form: Form, (scale, min): (f32, f32), small: Option<[u8; 2]>, input: usize, q: u8) -> f32 {
    let half = |small: [u8; 2]| small[input / (GROUP / 2)];
    let (small_scale, small_min) = match (form, small) {
        (Form::Q4K | Form::Q5K, Some([s, n])) => (f32::from(s), f32::from(n)),
        (Form::Q2K, Some(small)) => (f32::from(half(small) & 15), f32::from(half(small) >> 4)),
        (Form::IQ4XS, Some([s, _])) => (f32::from(s as i8), 0.0),
        (_, Some(small)) => (f32::from(half(small) as i8), 0.0),
        (_, None) => (1.0, 1.0),
    };
    if form.has_min() {
        (scale * small_scale).mul_add(f32::from(q), min * small_min)
    } else {
        let value =
            form.table().map_or(f32::from(q) - f32::from(form.zero()), |table| f32::from(table[usize::from(q)]));
        scale * small_scale * value
    }
}

/// Puts an output's floats into a group's registers, where input `i` of all outputs lie side by side, those of input `i + 1`
/// behind them.
pub(super) fn set_floats(form: Form, registers: &mut [u8], lane: usize, floats: &[f32]) {
    let mut bits = [0; GROUP];
    let bits = &mut bits[..floats.len()];
    match form {
        Form::F16 => bits.reinterpret_cast_mut::<f16>().convert_from_f32_slice(floats),
        Form::BF16 => bits.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(floats),
        _ => return set_lane(registers, lane, floats.iter().map(|float| float.to_le_bytes())),
    }
    set_lane(registers, lane, bits.iter().map(|bits: &u16| bits.to_le_bytes()));
}

/// Puts a lane's values where they belong among those of all lanes.
fn set_lane<const BYTES: usize>(registers: &mut [u8], lane: usize, values: impl Iterator<Item = [u8; BYTES]>) {
    for (of_input, value) in registers.chunks_exact_mut(BYTES * LANES).zip(values) {
        of_input[lane * BYTES..][..BYTES].copy_from_slice(&value);
    }
}

/// The float of an input.
pub(super) fn float(form: Form, registers: &[u8], lane: usize, input: usize) -> f32 {
    let at = float_at(form, lane, input);
    let low = [registers[at], registers[at + 1]];
    match form {
        Form::F16 => f16::from_le_bytes(low).to_f32(),
        Form::BF16 => bf16::from_le_bytes(low).to_f32(),
        _ => f32::from_le_bytes([low[0], low[1], registers[at + 2], registers[at + 3]]),
    }
}

/// Where the float of an input begins in a group's registers.
fn float_at(form: Form, lane: usize, input: usize) -> usize {
    (input * LANES + lane) * form.bits() / 8
}
