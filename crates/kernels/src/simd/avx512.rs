//! AVX-512 with VNNI: one register a vector, `vpdpbusd` for the integer products. Where the processor has a matrix unit
//! beside it, that has the integer products of full tiles of rows ([`super::amx`]).
//!
//! A value of the set's type can only be made by [`crate::isa`]'s entry for it, which is reached after the features were
//! detected: who has one may use the instructions.

use super::Simd;
use super::amx::MatrixUnit;
use super::features::{avx512_features, compiled_for};
use crate::matmul::{Quantized, RowTiles, Weights, matrix_unit, unpacking_pays};
use crate::packed::{Form, Panel};
use crate::quantize::TILE;
use std::arch::asm;
use std::arch::x86_64::*;

/// The instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512 {
    unit: Option<MatrixUnit>,
}

impl Avx512 {
    /// The right to use the set, and a matrix unit if there is one.
    ///
    /// # Safety
    /// The machine has it, and the caller was compiled for it.
    pub(crate) unsafe fn new(unit: Option<MatrixUnit>) -> Self {
        Self { unit }
    }
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    type A = __m512i;
    type Q = [__m512i; 2];
    type W = [__m512i; 2];

    const FLOAT_SUMS: usize = 24;
    const PANEL_ROWS: usize = TILE;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: __m512) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m512 {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m512 {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16, value: __m512) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(value)) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn pow2(self, a: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe {
            let n = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(n))
        }
    }
    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes) }
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn hadamard(self, a: __m512) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe {
            let other = _mm512_shuffle_f32x4::<0b01_00_11_10>(a, a);
            let a = _mm512_mask_sub_ps(_mm512_add_ps(a, other), 0xFF00, other, a);
            let other = _mm512_shuffle_f32x4::<0b10_11_00_01>(a, a);
            let a = _mm512_mask_sub_ps(_mm512_add_ps(a, other), 0xF0F0, other, a);
            let other = _mm512_permute_ps::<0b01_00_11_10>(a);
            let a = _mm512_mask_sub_ps(_mm512_add_ps(a, other), 0xCCCC, other, a);
            let other = _mm512_permute_ps::<0b10_11_00_01>(a);
            _mm512_mask_sub_ps(_mm512_add_ps(a, other), 0xAAAA, other, a)
        }
    }
    #[inline(always)]
    fn max_lane(self, a: __m512) -> f32 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    fn splat_i(self, value: i32) -> __m512i {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    fn reinterpret(self, a: __m512i) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_castsi512_ps(a) }
    }
    #[inline(always)]
    unsafe fn store_i8(self, to: *mut i8, value: __m512) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(value))) }
    }

    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8) -> __m512i {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, bytes: __m512i) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_storeu_si512(to.cast(), bytes) }
    }
    #[inline(always)]
    fn nibbles(self, bytes: __m512i) -> (__m512i, __m512i) {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            (_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask))
        }
    }
    #[inline(always)]
    fn shifted_bits(self, bytes: __m512i, by: i32, mask: u8) -> __m512i {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe {
            let count = _mm_cvtsi32_si128(by.abs());
            let shifted = if by < 0 { _mm512_sll_epi16(bytes, count) } else { _mm512_srl_epi16(bytes, count) };
            _mm512_and_si512(shifted, _mm512_set1_epi8(mask as i8))
        }
    }
    #[inline(always)]
    fn look_up(self, table: &[u8; 16], numbers: __m512i) -> __m512i {
        // SAFETY: the table has the 16 bytes that are loaded; the rest are registers, and `self` shows that the set is there.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, numbers)
        }
    }
    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn load_u8(self, from: *const u8, by: i32, mask: i32) -> __m512 {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe {
            let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
            let shifted = _mm512_srl_epi32(wide, _mm_cvtsi32_si128(by));
            _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(mask)))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> __m512 {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn activations(self, from: *const i8) -> __m512i {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    fn dot(self, sum: __m512i, weights: __m512i, activations: __m512i) -> __m512i {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_dpbusd_epi32(sum, weights, activations) }
    }
    #[inline(always)]
    fn less_128(self, bytes: __m512i) -> __m512i {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_xor_si512(bytes, _mm512_set1_epi8(i8::MIN)) }
    }
    #[inline(always)]
    fn quads(self, bytes: __m512i) -> [__m512i; 2] {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(bytes)), _mm512_srai_epi16::<8>(bytes)] }
    }
    #[inline(always)]
    unsafe fn factors(self, from: *const i16) -> [__m512i; 2] {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe {
            let from = from.cast::<i32>();
            [_mm512_set1_epi32(from.read_unaligned()), _mm512_set1_epi32(from.add(1).read_unaligned())]
        }
    }
    #[inline(always)]
    fn dot_quads(self, sum: __m512i, quads: [__m512i; 2], factors: [__m512i; 2]) -> __m512i {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { dot_pairs(dot_pairs(sum, quads[0], factors[0]), quads[1], factors[1]) }
    }
    #[inline(always)]
    fn to_floats(self, a: __m512i) -> __m512 {
        // SAFETY: registers only, and `self` shows that the instruction set is there.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    unsafe fn store_factors(self, to: *mut i16, value: __m512) {
        // SAFETY: the caller promises the memory behind the pointer, see `Simd`; `self` shows that the set is there.
        unsafe {
            let integers = _mm512_shuffle_epi32::<_MM_PERM_DBCA>(_mm512_cvtps_epi32(value));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(integers));
        }
    }
    avx512_features!(compiled_for!(
        unsafe fn rows_by_panels<W: Weights, const R: usize, const P: usize>(
            self,
            panels: &[Panel; P],
            tiles: &RowTiles<'_>,
        ) {
            // SAFETY: what is asked of our caller is what is asked here.
            unsafe { W::rows_by_panels::<Self, R, P>(self, panels, tiles) }
        }
    ));
    #[inline(always)]
    fn unpacks(self, form: Form, rows: usize) -> bool {
        let for_unit = self.unit.is_some() && matrix_unit::takes(form) && matrix_unit::unpacking_pays(rows);
        for_unit || unpacking_pays(form, rows)
    }
    #[inline(always)]
    unsafe fn by_matrix_unit<W: Quantized, const P: usize>(
        self,
        panels: &[Panel; P],
        packed: &[Panel; P],
        tiles: &RowTiles<'_>,
    ) -> bool {
        let unit = self.unit.filter(|_| matrix_unit::takes(W::FORM));
        let (Some(unit), Ok(panels), Ok(packed)) = (unit, panels.as_slice().try_into(), packed.as_slice().try_into())
        else {
            return false;
        };
        // SAFETY: the caller's.
        unsafe { matrix_unit::each_tile::<W>(self, unit, panels, packed, tiles) };
        true
    }
}

/// Adds to lane `i` the products of pair `i`: in one instruction, where the compiler would rather have a product and a sum.
///
/// # Safety
/// The machine has these instructions.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_pairs(sum: __m512i, pairs: __m512i, factors: __m512i) -> __m512i {
    let mut sum = sum;
    // SAFETY: registers only.
    unsafe {
        asm!(
            "vpdpwssd {sum}, {pairs}, {factors}",
            sum = inout(zmm_reg) sum,
            pairs = in(zmm_reg) pairs,
            factors = in(zmm_reg) factors,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}
