//! One vector vocabulary, several instruction sets.
//!
//! Kernels are written once over [`Simd`], whose vectors always hold sixteen 32-bit lanes (or 64 bytes), however wide
//! the machine's registers are. Every operation is defined to the bit (fused multiply-add, round to nearest even,
//! fixed reduction trees), so a kernel gives the same bytes on every instruction set.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod features;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod portable;

use crate::matmul::{GroupPart, Quantized, RowTiles, Weights, products_by_row, unpacking_pays};
use crate::packed::{Form, Panel};

/// Lanes of a vector.
pub const LANES: usize = 16;

/// How [`Simd::dot`] reads the bytes of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightBytes {
    /// As they are.
    Unsigned,
    /// As signed ones. Weights of eight bits, whose zero point is 128, go into it less 128, and so have none; those of fewer
    /// bits are the same either way.
    Signed,
}

/// Vector operations of one instruction set.
///
/// # Safety
/// Pointers must be valid for the 16 lanes (64 bytes) that an operation reads or writes; no alignment is needed.
/// Values of this type only exist where the instruction set was detected.
pub trait Simd: Copy {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `i32`.
    type I: Copy;
    /// Sixty-four bytes.
    type B: Copy;
    /// A row's four activations, ready for [`Self::dot`].
    type A: Copy;
    /// Sixty-four signed bytes, ready for [`Self::dot_quads`].
    type Q: Copy;
    /// Four factors, ready for [`Self::dot_quads`].
    type W: Copy;

    /// How [`Self::dot`] reads weights.
    const WEIGHT_BYTES: WeightBytes = WeightBytes::Unsigned;
    /// Vectors of sums that inner loops may keep in registers; wider tiles are computed in parts. (More than any tile has,
    /// where it was not found to pay.)
    const SUMS: usize = 24;
    /// Vectors of sums that products of floats keep in registers: two at least.
    const FLOAT_SUMS: usize = 4;
    /// Rows of one panel whose integer sums are in registers, where those of several panels are not: where a tile's are, its
    /// float sums may be too.
    const PANEL_ROWS: usize = 4;
    /// The same where quants are planes of bits, which cost more to bring together than sums in memory.
    const PLANE_ROWS: usize = Self::PANEL_ROWS;

    /// All lanes `value`.
    fn splat(self, value: f32) -> Self::F;
    /// Sixteen floats.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load(self, from: *const f32) -> Self::F;
    /// Stores sixteen floats.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn store(self, to: *mut f32, value: Self::F);
    /// Sixteen half-precision floats, widened.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load_f16(self, from: *const u16) -> Self::F;
    /// Sixteen floats of which the upper halves are given.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load_bf16(self, from: *const u16) -> Self::F;
    /// Stores sixteen floats rounded to half precision.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn store_f16(self, to: *mut u16, value: Self::F);
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger of each lane; `b` where either is not a number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of each lane; `b` where either is not a number.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Magnitudes.
    fn abs(self, a: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Two to the power of integral lanes between -126 and 127; zero for -127.
    fn pow2(self, a: Self::F) -> Self::F;
    /// `yes` in the lanes where `a < b`, else `no`.
    fn select_lt(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// The sum of all lanes: lane `i` with lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    fn sum(self, a: Self::F) -> f32;
    /// Hadamard's matrix times the lanes: for 8, 4, 2 and 1, lane `i` that lacks this bit becomes the sum, and lane `i` with
    /// it the difference, of the two that differ in it alone.
    fn hadamard(self, a: Self::F) -> Self::F;
    /// The largest lane.
    fn max_lane(self, a: Self::F) -> f32;

    /// All lanes `value`.
    fn splat_i(self, value: i32) -> Self::I;
    /// The floats that have these bits.
    fn reinterpret(self, a: Self::I) -> Self::F;
    /// Integral lanes within `i8`, as sixteen bytes.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn store_i8(self, to: *mut i8, value: Self::F);

    /// Sixty-four bytes.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load_bytes(self, from: *const u8) -> Self::B;
    /// Stores sixty-four bytes.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn store_bytes(self, to: *mut u8, bytes: Self::B);
    /// The low and the high nibble of every byte.
    fn nibbles(self, bytes: Self::B) -> (Self::B, Self::B);
    /// Every byte shifted right by `by` bits (left, if `by` is negative), and of what is then there the bits of `mask`, none
    /// of which may come from another byte.
    fn shifted_bits(self, bytes: Self::B, by: i32, mask: u8) -> Self::B;
    /// For every byte, which is below 16, the one of this number in the table.
    fn look_up(self, table: &[u8; 16], numbers: Self::B) -> Self::B;
    /// The bits of both.
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// Sixteen bytes, each shifted right by `by` bits and masked, as floats.
    ///
    /// # Safety
    /// Valid for 16 bytes.
    unsafe fn load_u8(self, from: *const u8, by: i32, mask: i32) -> Self::F;
    /// Sixteen signed bytes as floats.
    ///
    /// # Safety
    /// Valid for 16 bytes.
    unsafe fn load_i8(self, from: *const i8) -> Self::F;
    /// Four consecutive signed activations of one row.
    ///
    /// # Safety
    /// Valid for four bytes.
    unsafe fn activations(self, from: *const i8) -> Self::A;
    /// Adds to lane `i` the products of bytes `4i..4i+4`, read as [`Self::WEIGHT_BYTES`] says, with the row's four
    /// activations. Exact.
    fn dot(self, sum: Self::I, weights: Self::B, activations: Self::A) -> Self::I;

    /// Every byte less 128, as a signed one.
    fn less_128(self, bytes: Self::B) -> Self::B;

    /// Adds the products of a part of a group of `P` panels with `R` rows to their sums, as [`Self::dot`] does.
    ///
    /// # Safety
    /// The panels are of form `W`; they and the rows are valid for the part.
    #[inline(always)]
    unsafe fn products<W: Quantized, const R: usize, const P: usize>(
        self,
        sums: &mut [[Self::I; P]; R],
        part: GroupPart<'_, P>,
    ) {
        // SAFETY: the caller's.
        unsafe { products_by_row::<Self, W, R, P>(self, sums, part) }
    }

    /// Sixteen quads of signed bytes.
    fn quads(self, bytes: Self::B) -> Self::Q;
    /// Four factors of 16 bits for the bytes of a quad, in the order 0, 2, 1, 3.
    ///
    /// # Safety
    /// Valid for eight bytes.
    unsafe fn factors(self, from: *const i16) -> Self::W;
    /// Adds to lane `i` the products of quad `i` with the four factors. Exact.
    fn dot_quads(self, sum: Self::I, quads: Self::Q, factors: Self::W) -> Self::I;
    /// Integers as floats, rounded to the nearest.
    fn to_floats(self, a: Self::I) -> Self::F;
    /// Lanes within `i16`, rounded to the nearest integer, ties to even: factors for four quads, as [`Self::factors`] reads
    /// them.
    ///
    /// # Safety
    /// Valid for 32 bytes.
    unsafe fn store_factors(self, to: *mut i16, value: Self::F);

    /// Rows of a matrix product for some panels, compiled once for each kind of weights, number of rows `R` and of panels `P`.
    ///
    /// # Safety
    /// The machine has this instruction set; the rest as for [`crate::matmul`]'s inner loop.
    unsafe fn rows_by_panels<W: Weights, const R: usize, const P: usize>(
        self,
        panels: &[Panel; P],
        tiles: &RowTiles<'_>,
    );

    /// Whether products of so many rows unpack quants of a form to bytes, once for all tiles of rows.
    #[inline(always)]
    fn unpacks(self, form: Form, rows: usize) -> bool {
        unpacking_pays(form, rows)
    }

    /// Computes full tiles of rows times two panels, whose quants are bytes, on the processor's matrix unit, `packed` being the
    /// panels as they lie in the matrix. Does nothing and says so where there is no such unit.
    ///
    /// # Safety
    /// As [`Self::rows_by_panels`], and the tiles have as many rows as tiles can have.
    #[inline(always)]
    unsafe fn by_matrix_unit<W: Quantized, const P: usize>(
        self,
        _panels: &[Panel; P],
        _packed: &[Panel; P],
        _tiles: &RowTiles<'_>,
    ) -> bool {
        false
    }
}

/// A computation written over [`Simd`]; run it with [`crate::isa::Isa::run`].
pub trait Kernel {
    /// What it returns.
    type Output;
    /// The computation. Implementations must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// 2 to the power of each lane, none above zero, to about 2 units in the last place; 1 at zero, and 0 from -127 down and for
/// minus infinity.
#[inline(always)]
pub(crate) fn exp2_below<S: Simd>(s: S, x: S::F) -> S::F {
    // To this power `pow2` makes zero.
    let clamped = s.max(x, s.splat(-127.0));
    let n = s.round(clamped);
    let r = s.sub(clamped, n);
    let mut p = s.splat(1.326_472_5e-3);
    #[expect(clippy::approx_constant, reason = "the fit's, which has to make up for the terms that it lacks")]
    for c in [9.671_513e-3, 5.550_733_6e-2, 0.240_222_42, 0.693_147, 1.0] {
        p = s.fma(p, r, s.splat(c));
    }
    s.mul(p, s.pow2(n))
}

/// `e` to the power of each lane, to about 2 units in the last place; 0 below -87.3, and for minus infinity.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    const LOWEST: f32 = -87.3;
    let clamped = s.min(s.max(x, s.splat(LOWEST)), s.splat(88.0));
    let n = s.round(s.mul(clamped, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-0.693_359_4), clamped);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_2e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.fma(p, r, s.splat(c));
    }
    let p = s.fma(s.mul(r, r), p, s.add(r, s.splat(1.0)));
    s.select_lt(x, s.splat(LOWEST), s.splat(0.0), s.mul(p, s.pow2(n)))
}
