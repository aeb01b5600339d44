//! NEON with products of bytes: four registers a vector, `sdot` for the integer products, or `usdot` where i8mm is there.
//!
//! `sdot` takes both its operands as signed, so weights of eight bits go into it less 128 ([`WeightBytes::Signed`]); `usdot`
//! takes weights as they are. Either multiplies a register of weights with four bytes out of a register of activations, so
//! that the activations of four rows are one load. (`usmmla`, of two rows and two outputs, wants eight inputs of an output
//! side by side; bringing weights into this order takes as many instructions as it saves for so few rows as 32 registers
//! have sums of.)
//!
//! A value of the set's type can only be made by [`crate::isa`]'s entry for it, which is reached after the features were
//! detected: who has one may use the instructions. Those for which Rust has no stable function are assembly.

use super::features::{compiled_for, neon_features, neon_i8mm_features};
use super::{Simd, WeightBytes};
use crate::matmul::{GroupPart, Quantized, RowTiles, Weights};
use crate::packed::Panel;
use std::arch::aarch64::*;
use std::arch::asm;

/// NEON and `sdot`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    /// The right to use the set.
    ///
    /// # Safety
    /// The machine has it, and the caller was compiled for it.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// The same and `usdot`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeonI8mm(());

impl NeonI8mm {
    /// The right to use the set.
    ///
    /// # Safety
    /// The machine has it, and the caller was compiled for it.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// The expression for each of the four registers. Not a closure: those would not inherit the target features.
macro_rules! four {
    (|$i:ident| $value:expr) => {
        [
            {
                let $i = 0_usize;
                $value
            },
            {
                let $i = 1_usize;
                $value
            },
            {
                let $i = 2_usize;
                $value
            },
            {
                let $i = 3_usize;
                $value
            },
        ]
    };
}

/// The bytes of eight quads, widened: those that are first in their quads, then those that are second, and so on.
///
/// # Safety
/// The machine has NEON.
#[inline(always)]
unsafe fn quads_by_byte(low: int8x16_t, high: int8x16_t) -> [int16x8_t; 4] {
    // SAFETY: registers only; the set is there by the caller's promise.
    unsafe {
        let (even, odd) = (vuzp1q_s8(low, high), vuzp2q_s8(low, high));
        [
            vmovl_s8(vget_low_s8(vuzp1q_s8(even, even))),
            vmovl_s8(vget_low_s8(vuzp1q_s8(odd, odd))),
            vmovl_s8(vget_low_s8(vuzp2q_s8(even, even))),
            vmovl_s8(vget_low_s8(vuzp2q_s8(odd, odd))),
        ]
    }
}

macro_rules! dot_quads {
    ($name:ident, $which:literal, $multiply:ident, $($half:ident)?) => {
        #[doc = concat!("Adds the products of the ", $which, " four of eight quads with factors in the order 0, 2, 1, 3.")]
        ///
        /// # Safety
        /// The machine has NEON.
        #[inline(always)]
        unsafe fn $name(sum: int32x4_t, quads: [int16x8_t; 4], factors: int16x4_t) -> int32x4_t {
            // SAFETY: registers only; the set is there by the caller's promise.
            unsafe {
                let sum = $multiply::<0>(sum, $($half)?(quads[0]), factors);
                let sum = $multiply::<2>(sum, $($half)?(quads[1]), factors);
                let sum = $multiply::<1>(sum, $($half)?(quads[2]), factors);
                $multiply::<3>(sum, $($half)?(quads[3]), factors)
            }
        }
    };
}
dot_quads!(dot_low, "lower", vmlal_lane_s16, vget_low_s16);
dot_quads!(dot_high, "upper", vmlal_high_lane_s16,);

macro_rules! neon {
    ($name:ident, $features:ident, $bytes:expr, $instruction:literal) => {
        impl $name {
            /// Adds to each lane of four bytes their products with four activations: bytes `4 * LANE` and on of a register.
            ///
            /// # Safety
            /// The machine has the instruction set, and the caller was compiled for it.
            #[inline(always)]
            unsafe fn dot_lane<const LANE: usize>(
                mut sum: int32x4_t,
                weights: uint8x16_t,
                activations: int8x16_t,
            ) -> int32x4_t {
                // SAFETY: registers only; the set is there by the caller's promise.
                unsafe {
                    asm!(
                        concat!($instruction, " {sum:v}.4s, {weights:v}.16b, {activations:v}.4b[{lane}]"),
                        sum = inout(vreg) sum,
                        weights = in(vreg) weights,
                        activations = in(vreg) activations,
                        lane = const LANE,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                sum
            }

            /// The products of a row, whose activations are lane `LANE` of `rows`, with a step of a panel's weights.
            ///
            /// # Safety
            /// As [`Self::dot_lane`].
            #[inline(always)]
            unsafe fn add_row<const LANE: usize>(sum: &mut [int32x4_t; 4], weights: &[uint8x16_t; 4], rows: int8x16_t) {
                // SAFETY: the caller's.
                unsafe { *sum = four!(|i| Self::dot_lane::<LANE>(sum[i], weights[i], rows)) };
            }
        }

        impl Simd for $name {
            type F = [float32x4_t; 4];
            type I = [int32x4_t; 4];
            type B = [uint8x16_t; 4];
            type A = int8x16_t;
            /// The bytes of eight quads and of the other eight, widened, by their place in the quad.
            type Q = [[int16x8_t; 4]; 2];
            type W = int16x4_t;

            const WEIGHT_BYTES: WeightBytes = $bytes;
            /// 24 of 32 registers.
            const SUMS: usize = 6;

            #[inline(always)]
            fn splat(self, value: f32) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { [vdupq_n_f32(value); 4] }
            }
            #[inline(always)]
            unsafe fn load(self, from: *const f32) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { four!(|i| vld1q_f32(from.add(4 * i))) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { for (i, part) in value.into_iter().enumerate() {
                        vst1q_f32(to.add(4 * i), part);
                    } }
            }
            #[inline(always)]
            unsafe fn load_f16(self, from: *const u16) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { four!(|i| vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.add(4 * i))))) }
            }
            #[inline(always)]
            unsafe fn load_bf16(self, from: *const u16) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { four!(|i| vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.add(4 * i))))) }
            }
            #[inline(always)]
            unsafe fn store_f16(self, to: *mut u16, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { for (i, part) in value.into_iter().enumerate() {
                        vst1_u16(to.add(4 * i), vreinterpret_u16_f16(vcvt_f16_f32(part)));
                    } }
            }
            #[inline(always)]
            fn add(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vaddq_f32(a[i], b[i])) }
            }
            #[inline(always)]
            fn sub(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vsubq_f32(a[i], b[i])) }
            }
            #[inline(always)]
            fn mul(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vmulq_f32(a[i], b[i])) }
            }
            #[inline(always)]
            fn div(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vdivq_f32(a[i], b[i])) }
            }
            #[inline(always)]
            fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vfmaq_f32(c[i], a[i], b[i])) }
            }
            // `fmax` and `fmin` would give what is not a number, and `fmaxnm` and `fminnm` what is one.
            #[inline(always)]
            fn max(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i])) }
            }
            #[inline(always)]
            fn min(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vbslq_f32(vcltq_f32(a[i], b[i]), a[i], b[i])) }
            }
            #[inline(always)]
            fn abs(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vabsq_f32(a[i])) }
            }
            #[inline(always)]
            fn round(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vrndnq_f32(a[i])) }
            }
            #[inline(always)]
            fn pow2(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| {
                        let n = vaddq_s32(vcvtnq_s32_f32(a[i]), vdupq_n_s32(127));
                        vreinterpretq_f32_s32(vshlq_n_s32::<23>(n))
                    }) }
            }
            #[inline(always)]
            fn select_lt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vbslq_f32(vcltq_f32(a[i], b[i]), yes[i], no[i])) }
            }
            #[inline(always)]
            fn sum(self, a: Self::F) -> f32 {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
                    vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four))) }
            }
            #[inline(always)]
            fn hadamard(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    let [a, b, c, d] = a;
                    let [a, b, c, d] = [vaddq_f32(a, c), vaddq_f32(b, d), vsubq_f32(a, c), vsubq_f32(b, d)];
                    let a = [vaddq_f32(a, b), vsubq_f32(a, b), vaddq_f32(c, d), vsubq_f32(c, d)];
                    let halves = vreinterpretq_u32_u64(vcombine_u64(vdup_n_u64(0), vdup_n_u64(u64::MAX)));
                    let other = four!(|i| vextq_f32::<2>(a[i], a[i]));
                    let a = four!(|i| vbslq_f32(halves, vsubq_f32(other[i], a[i]), vaddq_f32(a[i], other[i])));
                    let odd = vreinterpretq_u32_u64(vdupq_n_u64(0xFFFF_FFFF_0000_0000));
                    let other = four!(|i| vrev64q_f32(a[i]));
                    four!(|i| vbslq_f32(odd, vsubq_f32(other[i], a[i]), vaddq_f32(a[i], other[i])))
                }
            }
            #[inline(always)]
            fn max_lane(self, a: Self::F) -> f32 {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { vmaxnmvq_f32(vmaxnmq_f32(vmaxnmq_f32(a[0], a[2]), vmaxnmq_f32(a[1], a[3]))) }
            }

            #[inline(always)]
            fn splat_i(self, value: i32) -> Self::I {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { [vdupq_n_s32(value); 4] }
            }
            #[inline(always)]
            fn reinterpret(self, a: Self::I) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vreinterpretq_f32_s32(a[i])) }
            }
            #[inline(always)]
            unsafe fn store_i8(self, to: *mut i8, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { let narrow = four!(|i| vqmovn_s32(vcvtnq_s32_f32(value[i])));
                    let low = vqmovn_s16(vcombine_s16(narrow[0], narrow[1]));
                    let high = vqmovn_s16(vcombine_s16(narrow[2], narrow[3]));
                    vst1q_s8(to, vcombine_s8(low, high)); }
            }

            #[inline(always)]
            unsafe fn load_bytes(self, from: *const u8) -> Self::B {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { four!(|i| vld1q_u8(from.add(16 * i))) }
            }
            #[inline(always)]
            unsafe fn store_bytes(self, to: *mut u8, bytes: Self::B) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { for (i, part) in bytes.into_iter().enumerate() {
                        vst1q_u8(to.add(16 * i), part);
                    } }
            }
            #[inline(always)]
            fn nibbles(self, bytes: Self::B) -> (Self::B, Self::B) {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { (four!(|i| vandq_u8(bytes[i], vdupq_n_u8(15))), four!(|i| vshrq_n_u8::<4>(bytes[i]))) }
            }
            #[inline(always)]
            fn shifted_bits(self, bytes: Self::B, by: i32, mask: u8) -> Self::B {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { // Right is left by less than nothing.
                    let by = vdupq_n_s8(-by as i8);
                    four!(|i| vandq_u8(vshlq_u8(bytes[i], by), vdupq_n_u8(mask))) }
            }
            #[inline(always)]
            fn look_up(self, table: &[u8; 16], numbers: Self::B) -> Self::B {
                // SAFETY: the table has the 16 bytes that are loaded; the rest are registers, and `self` shows that the set is
                // there.
                unsafe {
                    let table = vld1q_u8(table.as_ptr());
                    four!(|i| vqtbl1q_u8(table, numbers[i]))
                }
            }
            #[inline(always)]
            fn or(self, a: Self::B, b: Self::B) -> Self::B {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vorrq_u8(a[i], b[i])) }
            }
            #[inline(always)]
            unsafe fn load_u8(self, from: *const u8, by: i32, mask: i32) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { let bytes = vld1q_u8(from);
                    let wide = [vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)];
                    let (by, mask) = (vdupq_n_s32(-by), vdupq_n_u32(mask as u32));
                    four!(|i| {
                        let part = if i % 2 == 0 { vmovl_u16(vget_low_u16(wide[i / 2])) } else { vmovl_high_u16(wide[i / 2]) };
                        vcvtq_f32_u32(vandq_u32(vshlq_u32(part, by), mask))
                    }) }
            }
            #[inline(always)]
            unsafe fn load_i8(self, from: *const i8) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { let bytes = vld1q_s8(from);
                    let wide = [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)];
                    four!(|i| {
                        vcvtq_f32_s32(if i % 2 == 0 { vmovl_s16(vget_low_s16(wide[i / 2])) } else { vmovl_high_s16(wide[i / 2]) })
                    }) }
            }
            #[inline(always)]
            unsafe fn activations(self, from: *const i8) -> int8x16_t {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { vreinterpretq_s8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned())) }
            }
            #[inline(always)]
            fn dot(self, sum: Self::I, weights: Self::B, activations: int8x16_t) -> Self::I {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| Self::dot_lane::<0>(sum[i], weights[i], activations)) }
            }
            #[inline(always)]
            fn less_128(self, bytes: Self::B) -> Self::B {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| veorq_u8(bytes[i], vdupq_n_u8(128))) }
            }
            #[inline(always)]
            unsafe fn products<W: Quantized, const R: usize, const P: usize>(
                self,
                sums: &mut [[Self::I; P]; R],
                part: GroupPart<'_, P>,
            ) {
                // SAFETY: the caller's; `self` shows that the set is there. Activations of rows lie one behind another.
                // One panel after another: the operands of several would not stay in registers.
                unsafe {
                    for pair in part.pairs::<W>() {
                        for (p, panel) in part.panels.iter().enumerate() {
                            let (one, other) = part.weights::<Self, W>(self, panel, pair);
                            for (half, weights) in [one, other].iter().enumerate() {
                                let step = 2 * pair + half;
                                let (fours, left) = sums.as_chunks_mut::<4>();
                                for (i, [zeroth, first, second, third]) in fours.iter_mut().enumerate() {
                                    let rows = vld1q_s8(part.activations(step, 4 * i));
                                    Self::add_row::<0>(&mut zeroth[p], weights, rows);
                                    Self::add_row::<1>(&mut first[p], weights, rows);
                                    Self::add_row::<2>(&mut second[p], weights, rows);
                                    Self::add_row::<3>(&mut third[p], weights, rows);
                                }
                                for (row, left) in left.iter_mut().enumerate() {
                                    let row = self.activations(part.activations(step, R / 4 * 4 + row));
                                    Self::add_row::<0>(&mut left[p], weights, row);
                                }
                            }
                        }
                    }
                }
            }
            #[inline(always)]
            fn quads(self, bytes: Self::B) -> Self::Q {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { let signed = four!(|i| vreinterpretq_s8_u8(bytes[i]));
                    [quads_by_byte(signed[0], signed[1]), quads_by_byte(signed[2], signed[3])] }
            }
            #[inline(always)]
            unsafe fn factors(self, from: *const i16) -> int16x4_t {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { vld1_s16(from) }
            }
            #[inline(always)]
            fn dot_quads(self, sum: Self::I, quads: Self::Q, factors: int16x4_t) -> Self::I {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { [
                        dot_low(sum[0], quads[0], factors),
                        dot_high(sum[1], quads[0], factors),
                        dot_low(sum[2], quads[1], factors),
                        dot_high(sum[3], quads[1], factors),
                    ] }
            }
            #[inline(always)]
            fn to_floats(self, a: Self::I) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { four!(|i| vcvtq_f32_s32(a[i])) }
            }
            #[inline(always)]
            unsafe fn store_factors(self, to: *mut i16, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { for (i, part) in value.into_iter().enumerate() {
                        let integers = vcvtnq_s32_f32(part);
                        let ordered = vzip1q_s32(integers, vextq_s32::<2>(integers, integers));
                        vst1_s16(to.add(4 * i), vqmovn_s32(ordered));
                    } }
            }
            $features!(compiled_for!(
                unsafe fn rows_by_panels<W: Weights, const R: usize, const P: usize>(
                    self,
                    panels: &[Panel; P],
                    tiles: &RowTiles<'_>,
                ) {
                    // SAFETY: what is asked of our caller is what is asked here.
                    unsafe { W::rows_by_panels::<Self, R, P>(self, panels, tiles) }
                }
            ));
        }
    };
}

neon!(Neon, neon_features, WeightBytes::Signed, "sdot");
neon!(NeonI8mm, neon_i8mm_features, WeightBytes::Unsigned, "usdot");
