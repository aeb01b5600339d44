//! AVX2 with FMA and F16C: two registers a vector; the integer products by `vpdpbusd` where AVX-VNNI is there, else by
//! `vpmaddubsw`, never beyond what its 16 bits hold.
//!
//! A value of the set's type can only be made by [`crate::isa`]'s entry for it, which is reached after the features were
//! detected: who has one may use the instructions.

use super::features::{avx2_features, avx2_vnni_features, compiled_for};
use super::{Simd, WeightBytes};
use crate::matmul::{GroupPart, Quantized, RowTiles, Weights, products_by_row};
use crate::packed::{Form, Panel};
use crate::quantize::TILE;
use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The right to use the set.
    ///
    /// # Safety
    /// The machine has it, and the caller was compiled for it.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// The same with AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2Vnni(());

impl Avx2Vnni {
    /// The right to use the set.
    ///
    /// # Safety
    /// The machine has it, and the caller was compiled for it.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// The expression for each of the two registers. Not a closure: those would not inherit the target features.
macro_rules! both {
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
        ]
    };
}

/// `other - a` in the lanes of the mask, else the sum.
///
/// # Safety
/// The machine has AVX2, and the caller was compiled for it.
#[inline(always)]
unsafe fn sums_and_differences<const MASK: i32>(a: __m256, other: __m256) -> __m256 {
    // SAFETY: the caller's.
    unsafe { _mm256_blend_ps::<MASK>(_mm256_add_ps(a, other), _mm256_sub_ps(other, a)) }
}

/// The same integers, of which the compiler knows nothing: sums that went through here are made in the order in which they are
/// written. Left to itself it adds the products of several steps to each other before it adds them to a sum, and begins steps
/// ahead, for which 16 registers are not enough. (Of products that are widened at each step it does so, too, and is no slower.)
///
/// # Safety
/// The machine has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn in_order(mut sum: __m256i) -> __m256i {
    // SAFETY: a comment is no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags)) };
    sum
}

macro_rules! avx2 {
    ($name:ident, $features:ident, $bytes:expr, $plane_rows:expr, $dot:item, $dot_pairs:item $(, $products:item)?) => {
        impl $name {
            #[inline(always)]
            $dot_pairs
        }

        impl Simd for $name {
            type F = [__m256; 2];
            type I = [__m256i; 2];
            type B = [__m256i; 2];
            type A = __m256i;
            type Q = [[__m256i; 2]; 2];
            type W = [__m256i; 2];

            const WEIGHT_BYTES: WeightBytes = $bytes;
            /// Eight of sixteen registers.
            const SUMS: usize = 4;
            const PLANE_ROWS: usize = $plane_rows;

            #[inline(always)]
            fn splat(self, value: f32) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { [_mm256_set1_ps(value); 2] }
            }
            #[inline(always)]
            unsafe fn load(self, from: *const f32) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { both!(|i| _mm256_loadu_ps(from.add(8 * i))) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    _mm256_storeu_ps(to, value[0]);
                    _mm256_storeu_ps(to.add(8), value[1]);
                }
            }
            #[inline(always)]
            unsafe fn load_f16(self, from: *const u16) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { both!(|i| _mm256_cvtph_ps(_mm_loadu_si128(from.add(8 * i).cast()))) }
            }
            #[inline(always)]
            unsafe fn load_bf16(self, from: *const u16) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    both!(|i| {
                        let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.add(8 * i).cast()));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
                    })
                }
            }
            #[inline(always)]
            unsafe fn store_f16(self, to: *mut u16, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    for (i, half) in value.into_iter().enumerate() {
                        let bits = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(half);
                        _mm_storeu_si128(to.add(8 * i).cast(), bits);
                    }
                }
            }
            #[inline(always)]
            fn add(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_add_ps(a[i], b[i])) }
            }
            #[inline(always)]
            fn sub(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_sub_ps(a[i], b[i])) }
            }
            #[inline(always)]
            fn mul(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_mul_ps(a[i], b[i])) }
            }
            #[inline(always)]
            fn div(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_div_ps(a[i], b[i])) }
            }
            #[inline(always)]
            fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_fmadd_ps(a[i], b[i], c[i])) }
            }
            #[inline(always)]
            fn max(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_max_ps(a[i], b[i])) }
            }
            #[inline(always)]
            fn min(self, a: Self::F, b: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_min_ps(a[i], b[i])) }
            }
            #[inline(always)]
            fn abs(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_andnot_ps(_mm256_set1_ps(-0.0), a[i])) }
            }
            #[inline(always)]
            fn round(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    both!(|i| _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a[i]))
                }
            }
            #[inline(always)]
            fn pow2(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    both!(|i| {
                        let n = _mm256_add_epi32(_mm256_cvtps_epi32(a[i]), _mm256_set1_epi32(127));
                        _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
                    })
                }
            }
            #[inline(always)]
            fn select_lt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    both!(|i| _mm256_blendv_ps(no[i], yes[i], _mm256_cmp_ps::<_CMP_LT_OQ>(a[i], b[i])))
                }
            }
            #[inline(always)]
            fn sum(self, a: Self::F) -> f32 {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    let eight = _mm256_add_ps(a[0], a[1]);
                    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
                    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
                }
            }
            #[inline(always)]
            fn hadamard(self, a: Self::F) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    let a = [_mm256_add_ps(a[0], a[1]), _mm256_sub_ps(a[0], a[1])];
                    let other = both!(|i| _mm256_permute2f128_ps::<1>(a[i], a[i]));
                    let a = both!(|i| sums_and_differences::<0xF0>(a[i], other[i]));
                    let other = both!(|i| _mm256_permute_ps::<0b01_00_11_10>(a[i]));
                    let a = both!(|i| sums_and_differences::<0xCC>(a[i], other[i]));
                    let other = both!(|i| _mm256_permute_ps::<0b10_11_00_01>(a[i]));
                    both!(|i| sums_and_differences::<0xAA>(a[i], other[i]))
                }
            }
            #[inline(always)]
            fn max_lane(self, a: Self::F) -> f32 {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    let eight = _mm256_max_ps(a[0], a[1]);
                    let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
                    let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
                    _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
                }
            }

            #[inline(always)]
            fn splat_i(self, value: i32) -> Self::I {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { [_mm256_set1_epi32(value); 2] }
            }
            #[inline(always)]
            fn reinterpret(self, a: Self::I) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_castsi256_ps(a[i])) }
            }
            #[inline(always)]
            unsafe fn store_i8(self, to: *mut i8, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    for (i, half) in value.into_iter().enumerate() {
                        let wide = _mm256_cvtps_epi32(half);
                        let low = _mm256_castsi256_si128(wide);
                        let words = _mm_packs_epi32(low, _mm256_extracti128_si256::<1>(wide));
                        _mm_storel_epi64(to.add(8 * i).cast(), _mm_packs_epi16(words, words));
                    }
                }
            }

            #[inline(always)]
            unsafe fn load_bytes(self, from: *const u8) -> Self::B {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { both!(|i| _mm256_loadu_si256(from.add(32 * i).cast())) }
            }
            #[inline(always)]
            unsafe fn store_bytes(self, to: *mut u8, bytes: Self::B) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    _mm256_storeu_si256(to.cast(), bytes[0]);
                    _mm256_storeu_si256(to.add(32).cast(), bytes[1]);
                }
            }
            #[inline(always)]
            fn nibbles(self, bytes: Self::B) -> (Self::B, Self::B) {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    let mask = _mm256_set1_epi8(15);
                    (
                        both!(|i| _mm256_and_si256(bytes[i], mask)),
                        both!(|i| _mm256_and_si256(_mm256_srli_epi16::<4>(bytes[i]), mask)),
                    )
                }
            }
            #[inline(always)]
            fn shifted_bits(self, bytes: Self::B, by: i32, mask: u8) -> Self::B {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    let (count, mask) = (_mm_cvtsi32_si128(by.abs()), _mm256_set1_epi8(mask as i8));
                    let shifted = both!(|i| {
                        if by < 0 { _mm256_sll_epi16(bytes[i], count) } else { _mm256_srl_epi16(bytes[i], count) }
                    });
                    both!(|i| _mm256_and_si256(shifted[i], mask))
                }
            }
            #[inline(always)]
            fn look_up(self, table: &[u8; 16], numbers: Self::B) -> Self::B {
                // SAFETY: the table has the 16 bytes that are loaded; the rest are registers, and `self` shows that the set is
                // there.
                unsafe {
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                    both!(|i| _mm256_shuffle_epi8(table, numbers[i]))
                }
            }
            #[inline(always)]
            fn or(self, a: Self::B, b: Self::B) -> Self::B {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_or_si256(a[i], b[i])) }
            }
            #[inline(always)]
            unsafe fn load_u8(self, from: *const u8, by: i32, mask: i32) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    let (count, mask) = (_mm_cvtsi32_si128(by), _mm256_set1_epi32(mask));
                    both!(|i| {
                        let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.add(8 * i).cast()));
                        _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(wide, count), mask))
                    })
                }
            }
            #[inline(always)]
            unsafe fn load_i8(self, from: *const i8) -> Self::F {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    both!(|i| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8 * i).cast()))))
                }
            }
            #[inline(always)]
            unsafe fn activations(self, from: *const i8) -> __m256i {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
            }
            #[inline(always)]
            $dot
            $(
                #[inline(always)]
                $products
            )?
            #[inline(always)]
            fn less_128(self, bytes: Self::B) -> Self::B {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_xor_si256(bytes[i], _mm256_set1_epi8(i8::MIN))) }
            }
            #[inline(always)]
            fn quads(self, bytes: Self::B) -> Self::Q {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe {
                    [
                        both!(|i| _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes[i]))),
                        both!(|i| _mm256_srai_epi16::<8>(bytes[i])),
                    ]
                }
            }
            #[inline(always)]
            unsafe fn factors(self, from: *const i16) -> [__m256i; 2] {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    let from = from.cast::<i32>();
                    both!(|i| _mm256_set1_epi32(from.add(i).read_unaligned()))
                }
            }
            #[inline(always)]
            fn dot_quads(self, sum: Self::I, quads: Self::Q, factors: [__m256i; 2]) -> Self::I {
                self.dot_pairs(self.dot_pairs(sum, quads[0], factors[0]), quads[1], factors[1])
            }
            #[inline(always)]
            fn to_floats(self, a: Self::I) -> Self::F {
                // SAFETY: registers only, and `self` shows that the instruction set is there.
                unsafe { both!(|i| _mm256_cvtepi32_ps(a[i])) }
            }
            #[inline(always)]
            unsafe fn store_factors(self, to: *mut i16, value: Self::F) {
                // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
                unsafe {
                    for (i, half) in value.into_iter().enumerate() {
                        let wide = _mm256_shuffle_epi32::<0b11_01_10_00>(_mm256_cvtps_epi32(half));
                        let (low, high) = (_mm256_castsi256_si128(wide), _mm256_extracti128_si256::<1>(wide));
                        _mm_storeu_si128(to.add(8 * i).cast(), _mm_packs_epi32(low, high));
                    }
                }
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

// Without VNNI, `vpmaddubsw` adds up two products in 16 bits, which is exact as long as they fit. It takes unsigned bytes by
// signed ones, so signed weights hand their signs to the activations; of those with few bits many steps are added up before
// the sums are widened.
avx2!(
    Avx2,
    avx2_features,
    WeightBytes::Signed,
    TILE,
    fn dot(self, sum: Self::I, weights: Self::B, activations: __m256i) -> Self::I {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe {
            both!(|i| {
                let signed = _mm256_sign_epi8(activations, weights[i]);
                let products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights[i]), signed);
                add_wide(sum[i], products)
            })
        }
    },
    fn dot_pairs(self, sum: [__m256i; 2], pairs: [__m256i; 2], factors: __m256i) -> [__m256i; 2] {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { both!(|i| _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs[i], factors))) }
    },
    unsafe fn products<W: Quantized, const R: usize, const P: usize>(
        self,
        sums: &mut [[Self::I; P]; R],
        part: GroupPart<'_, P>,
    ) {
        if steps_in_16_bits(W::FORM) < 2 {
            // SAFETY: the caller's.
            return unsafe { products_by_row::<Self, W, R, P>(self, sums, part) };
        }
        // SAFETY: the caller's.
        unsafe {
            if R > Self::PANEL_ROWS {
                add_registers::<W, R, P, 0, 1>(self, sums, part);
                add_registers::<W, R, P, 1, 1>(self, sums, part);
            } else {
                add_registers::<W, R, P, 0, 2>(self, sums, part);
            }
        }
    }
);

/// How many steps of four inputs add up to sums of 16 bits, whatever the quants and the activations are: two products of each.
const fn steps_in_16_bits(form: Form) -> usize {
    const ACTIVATION_MAX: usize = 127;
    if form.zero() == 128 {
        return 1;
    }
    i16::MAX as usize / (2 * ACTIVATION_MAX * ((1 << form.bits()) - 1))
}

/// Adds the products of a part of a group to `N` registers of each sum, from register `FIRST` on: both, or one after the other
/// where there are so many rows that their sums leave no room for two.
///
/// # Safety
/// As [`Simd::products`], and there are such registers.
#[inline(always)]
unsafe fn add_registers<W: Quantized, const R: usize, const P: usize, const FIRST: usize, const N: usize>(
    s: Avx2,
    sums: &mut [[[__m256i; 2]; P]; R],
    part: GroupPart<'_, P>,
) {
    let together = steps_in_16_bits(W::FORM) / 2;
    let all = part.pairs::<W>();
    for begin in all.clone().step_by(together) {
        let pairs = begin..all.end.min(begin + together);
        for (p, panel) in part.panels.iter().enumerate() {
            // SAFETY: the caller's, and so many products fit in 16 bits.
            unsafe {
                if together == 1 {
                    add_pair::<W, R, P, FIRST, N>(s, sums, part, (p, panel), begin);
                } else {
                    add_pairs::<W, R, P, FIRST, N>(s, sums, part, (p, panel), pairs.clone());
                }
            }
        }
    }
}

/// Adds the products of a panel in one pair of steps to sums, row by row: sums of 32 and of 16 bits of all rows would not fit in
/// registers together.
///
/// # Safety
/// As [`add_registers`], the pair is one of the part's, and its products fit in 16 bits.
#[inline(always)]
unsafe fn add_pair<W: Quantized, const R: usize, const P: usize, const FIRST: usize, const N: usize>(
    s: Avx2,
    sums: &mut [[[__m256i; 2]; P]; R],
    part: GroupPart<'_, P>,
    (p, panel): (usize, &Panel),
    pair: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let weights = part.weights::<Avx2, W>(s, panel, pair);
        for (row, sums) in sums.iter_mut().enumerate() {
            let narrow = pair_in_16_bits::<P, FIRST, N>(s, weights, part, pair, row);
            for i in 0..N {
                sums[p][FIRST + i] = in_order(add_wide(sums[p][FIRST + i], narrow[i]));
            }
        }
    }
}

/// The same of several pairs of steps, all of which fit in 16 bits together.
///
/// # Safety
/// As [`add_pair`].
#[inline(always)]
unsafe fn add_pairs<W: Quantized, const R: usize, const P: usize, const FIRST: usize, const N: usize>(
    s: Avx2,
    sums: &mut [[[__m256i; 2]; P]; R],
    part: GroupPart<'_, P>,
    (p, panel): (usize, &Panel),
    pairs: Range<usize>,
) {
    // SAFETY: the caller's; the rest are registers, and `s` shows that the instruction set is there.
    unsafe {
        let mut narrow = [[_mm256_setzero_si256(); N]; R];
        let weights = part.weights::<Avx2, W>(s, panel, pairs.start);
        for (row, narrow) in narrow.iter_mut().enumerate() {
            let products = pair_in_16_bits::<P, FIRST, N>(s, weights, part, pairs.start, row);
            for i in 0..N {
                narrow[i] = in_order(products[i]);
            }
        }
        for pair in pairs.skip(1) {
            let (one, other) = part.weights::<Avx2, W>(s, panel, pair);
            for (half, weights) in [one, other].into_iter().enumerate() {
                for (row, narrow) in narrow.iter_mut().enumerate() {
                    let four = s.activations(part.activations(2 * pair + half, row));
                    for i in 0..N {
                        let products = _mm256_maddubs_epi16(weights[FIRST + i], four);
                        narrow[i] = in_order(_mm256_add_epi16(narrow[i], products));
                    }
                }
            }
        }
        for (sums, narrow) in sums.iter_mut().zip(narrow) {
            for i in 0..N {
                sums[p][FIRST + i] = add_wide(sums[p][FIRST + i], narrow[i]);
            }
        }
    }
}

/// The products of a row in a pair of steps.
///
/// # Safety
/// As [`add_pair`].
#[inline(always)]
unsafe fn pair_in_16_bits<const P: usize, const FIRST: usize, const N: usize>(
    s: Avx2,
    (one, other): ([__m256i; 2], [__m256i; 2]),
    part: GroupPart<'_, P>,
    pair: usize,
    row: usize,
) -> [__m256i; N] {
    // SAFETY: the caller's; the rest are registers, and `s` shows that the instruction set is there.
    unsafe {
        let (low, high) =
            (s.activations(part.activations(2 * pair, row)), s.activations(part.activations(2 * pair + 1, row)));
        let mut sums = [_mm256_setzero_si256(); N];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_add_epi16(
                _mm256_maddubs_epi16(one[FIRST + i], low),
                _mm256_maddubs_epi16(other[FIRST + i], high),
            );
        }
        sums
    }
}

/// Adds pairs of 16 bits to sums.
///
/// # Safety
/// The machine has AVX2, and the caller was compiled for it.
#[inline(always)]
unsafe fn add_wide(sums: __m256i, narrow: __m256i) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1))) }
}

avx2!(
    Avx2Vnni,
    avx2_vnni_features,
    WeightBytes::Unsigned,
    Self::PANEL_ROWS,
    fn dot(self, sum: Self::I, weights: Self::B, activations: __m256i) -> Self::I {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { both!(|i| _mm256_dpbusd_avx_epi32(sum[i], weights[i], activations)) }
    },
    fn dot_pairs(self, sum: [__m256i; 2], pairs: [__m256i; 2], factors: __m256i) -> [__m256i; 2] {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { both!(|i| _mm256_dpwssd_avx_epi32(sum[i], pairs[i], factors)) }
    }
);
