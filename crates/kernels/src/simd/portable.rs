//! Plain Rust: correct everywhere, the reference that every other instruction set must equal to the bit.

use super::{LANES, Simd};
use crate::matmul::{RowTiles, Weights};
use crate::packed::Panel;
use half::f16;
use std::array::from_fn;

/// No special instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type B = [u8; 4 * LANES];
    type A = [i8; 4];
    type Q = [u8; 4 * LANES];
    type W = [i16; 4];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::F {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: Self::F) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { to.cast::<Self::F>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::F {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Self::F {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16, value: Self::F) {
        let bits = value.map(|value| f16::from_f32(value).to_bits());
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) }
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn pow2(self, a: Self::F) -> Self::F {
        a.map(|n| f32::from_bits(((n as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    fn select_lt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
        from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        let eight: [f32; 8] = from_fn(|i| a[i] + a[i + 8]);
        let four: [f32; 4] = from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    fn hadamard(self, mut a: Self::F) -> Self::F {
        for bit in [8, 4, 2, 1] {
            a = from_fn(|i| if i & bit == 0 { a[i] + a[i | bit] } else { a[i & !bit] - a[i] });
        }
        a
    }
    #[inline(always)]
    fn max_lane(self, a: Self::F) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn splat_i(self, value: i32) -> Self::I {
        [value; LANES]
    }
    #[inline(always)]
    fn reinterpret(self, a: Self::I) -> Self::F {
        a.map(|value| f32::from_bits(value as u32))
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8, value: Self::F) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { to.cast::<[i8; LANES]>().write_unaligned(value.map(|value| value.round_ties_even() as i8)) }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> Self::B {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { from.cast::<Self::B>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, bytes: Self::B) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { to.cast::<Self::B>().write_unaligned(bytes) }
    }
    #[inline(always)]
    fn nibbles(self, bytes: Self::B) -> (Self::B, Self::B) {
        (bytes.map(|byte| byte & 15), bytes.map(|byte| byte >> 4))
    }
    #[inline(always)]
    fn shifted_bits(self, bytes: Self::B, by: i32, mask: u8) -> Self::B {
        bytes.map(|byte| mask & if by < 0 { byte << -by } else { byte >> by })
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], numbers: Self::B) -> Self::B {
        numbers.map(|number| table[usize::from(number & 15)])
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, by: i32, mask: i32) -> Self::F {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { from.cast::<[u8; LANES]>().read_unaligned() }.map(|byte| (i32::from(byte) >> by & mask) as f32)
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> Self::F {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { from.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn activations(self, from: *const i8) -> [i8; 4] {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { from.cast::<[i8; 4]>().read_unaligned() }
    }
    #[inline(always)]
    fn dot(self, sum: Self::I, weights: Self::B, activations: [i8; 4]) -> Self::I {
        from_fn(|lane| {
            let products = (0..4).map(|i| i32::from(weights[4 * lane + i]) * i32::from(activations[i]));
            sum[lane] + products.sum::<i32>()
        })
    }
    #[inline(always)]
    fn less_128(self, bytes: Self::B) -> Self::B {
        bytes.map(|byte| byte ^ 128)
    }
    #[inline(always)]
    fn quads(self, bytes: Self::B) -> Self::Q {
        bytes
    }
    #[inline(always)]
    unsafe fn factors(self, from: *const i16) -> [i16; 4] {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        let [zeroth, second, first, third] = unsafe { from.cast::<[i16; 4]>().read_unaligned() };
        [zeroth, first, second, third]
    }
    #[inline(always)]
    fn dot_quads(self, sum: Self::I, quads: Self::Q, factors: [i16; 4]) -> Self::I {
        from_fn(|lane| {
            let products = (0..4).map(|i| i32::from(quads[4 * lane + i] as i8) * i32::from(factors[i]));
            sum[lane] + products.sum::<i32>()
        })
    }
    #[inline(always)]
    fn to_floats(self, a: Self::I) -> Self::F {
        a.map(|value| value as f32)
    }
    #[inline(always)]
    unsafe fn store_factors(self, to: *mut i16, value: Self::F) {
        let mut factors = value.map(|value| value.round_ties_even() as i16);
        factors.as_chunks_mut::<4>().0.iter_mut().for_each(|quad| quad.swap(1, 2));
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`.
        unsafe { to.cast::<[i16; LANES]>().write_unaligned(factors) }
    }
    unsafe fn rows_by_panels<W: Weights, const R: usize, const P: usize>(
        self,
        panels: &[Panel; P],
        tiles: &RowTiles<'_>,
    ) {
        // SAFETY: what is asked of our caller is what is asked here.
        unsafe { W::row_by_row::<Self>(self, panels, R, tiles) }
    }
}
