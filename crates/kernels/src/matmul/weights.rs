//! How the bytes of a panel become operands of the integer products, and what scales the sums: each [`Form`] is some way of
//! storing quants and some way of storing scales. Layouts are those of [`crate::packed`].
//!
//! [`Form`]: crate::packed::Form

use super::{RowTiles, tile};
use crate::packed::{Form, HALVES, Panel};
use crate::quantize::GROUP;
use crate::simd::{LANES, Simd};

/// A form of weights, for which the inner loops are compiled.
pub trait Weights {
    /// Which one it is.
    const FORM: Form;

    /// Tiles of `R` rows times `P` panels.
    ///
    /// # Safety
    /// The tiles exist and have `R` rows, the panels are of this form and valid for the rows' groups, and no other call of
    /// the product computes the same rows and panels.
    unsafe fn rows_by_panels<S: Simd, const R: usize, const P: usize>(s: S, panels: &[Panel; P], tiles: &RowTiles<'_>);

    /// The same, one row and two panels at a time.
    ///
    /// # Safety
    /// As [`Self::rows_by_panels`], the tiles having `height` rows.
    unsafe fn row_by_row<S: Simd>(s: S, panels: &[Panel], height: usize, tiles: &RowTiles<'_>);
}

/// A form with quants, which are multiplied as integers.
pub trait Quantized {
    /// Its quants.
    type Quants: Quants;
    /// Its scales.
    type Scales: Scales;
    /// Which one it is.
    const FORM: Form;
}

impl<W: Quantized> Weights for W {
    const FORM: Form = <W as Quantized>::FORM;

    #[inline(always)]
    unsafe fn rows_by_panels<S: Simd, const R: usize, const P: usize>(s: S, panels: &[Panel; P], tiles: &RowTiles<'_>) {
        // SAFETY: the caller's.
        unsafe { tile::rows_by_panels::<S, W, R, P>(s, panels, tiles) }
    }

    #[inline(always)]
    unsafe fn row_by_row<S: Simd>(s: S, panels: &[Panel], height: usize, tiles: &RowTiles<'_>) {
        // SAFETY: the caller's.
        unsafe { tile::row_by_row::<S, W>(s, panels, height, tiles) }
    }
}

/// Quants of some bits.
pub trait Quants {
    /// Registers of a group.
    const REGISTERS: usize;

    /// The operands of steps `2 * pair` and `2 * pair + 1` of the group whose registers begin at `group`; a step is four
    /// inputs.
    ///
    /// # Safety
    /// Valid for the registers of a group.
    unsafe fn pair<S: Simd>(s: S, group: *const u8, pair: usize) -> (S::B, S::B);
}

/// Scales of some layout.
pub trait Scales {
    /// Parts of a group that have scales of their own.
    const PARTS: usize;

    /// What groups share that lie in one block: `d` and `m`.
    ///
    /// # Safety
    /// `block` points to them.
    unsafe fn shared<S: Simd>(s: S, block: *const u8) -> [S::F; 2];

    /// The scales of a part of the group whose scales begin at `group`.
    ///
    /// # Safety
    /// Valid for a group's scales.
    unsafe fn scale<S: Simd>(s: S, shared: [S::F; 2], group: *const u8, part: usize) -> S::F;

    /// Its minima, where weights have them.
    ///
    /// # Safety
    /// As [`Self::scale`].
    unsafe fn min<S: Simd>(s: S, shared: [S::F; 2], group: *const u8, part: usize) -> Option<S::F>;
}

/// Register `index` of a group.
#[inline(always)]
unsafe fn register<S: Simd>(s: S, group: *const u8, index: usize) -> S::B {
    // SAFETY: the caller's.
    unsafe { s.load_bytes(group.add(index * 64)) }
}

/// Operands of which some bits are `low`, and those above them bits of `plane`: of step `2 * pair` those from bit
/// `at` on, of the next those after them.
#[inline(always)]
fn with_upper<S: Simd, const BITS: i32, const LOW: i32>(s: S, low: (S::B, S::B), plane: S::B, at: i32) -> (S::B, S::B) {
    let mask = ((1 << BITS) - 1) << LOW;
    (s.or(low.0, s.shifted_bits(plane, at - LOW, mask)), s.or(low.1, s.shifted_bits(plane, at + BITS - LOW, mask)))
}

/// The two-bit runs of a pair of steps in the planes that begin at register `first`.
#[inline(always)]
unsafe fn two_bits<S: Simd>(s: S, group: *const u8, first: usize, pair: usize) -> (S::B, i32) {
    // SAFETY: the caller's; a plane holds four steps.
    (unsafe { register(s, group, first + pair / 2) }, pair as i32 % 2 * 4)
}

macro_rules! quants {
    ($($name:ident, $bits:literal, |$s:ident, $group:ident, $pair:ident| $operands:expr;)*) => {$(
        #[doc = concat!("Quants of ", stringify!($bits), " bits.")]
        pub(super) struct $name;
        impl Quants for $name {
            const REGISTERS: usize = GROUP * $bits * LANES / 8 / 64;

            #[inline(always)]
            unsafe fn pair<S: Simd>($s: S, $group: *const u8, $pair: usize) -> (S::B, S::B) {
                // SAFETY: the caller's; registers below the form's number.
                unsafe { $operands }
            }
        }
    )*};
}
quants! {
    Eight, 8, |s, group, pair| (register(s, group, 2 * pair), register(s, group, 2 * pair + 1));
    Four, 4, |s, group, pair| s.nibbles(register(s, group, pair));
    Five, 5, |s, group, pair| {
        with_upper::<S, 1, 4>(s, s.nibbles(register(s, group, pair)), register(s, group, 4), 2 * pair as i32)
    };
    Six, 6, |s, group, pair| {
        let (plane, at) = two_bits(s, group, 4, pair);
        with_upper::<S, 2, 4>(s, s.nibbles(register(s, group, pair)), plane, at)
    };
    Two, 2, |s, group, pair| {
        let (plane, at) = two_bits(s, group, 0, pair);
        (s.shifted_bits(plane, at, 3), s.shifted_bits(plane, at + 2, 3))
    };
    Three, 3, |s, group, pair| {
        with_upper::<S, 1, 2>(s, Two::pair(s, group, pair), register(s, group, 2), 2 * pair as i32)
    };
}

/// Four bits that number values of a table: operands are these, as bytes around 128.
macro_rules! numbered {
    ($($name:ident: $form:ident;)*) => {$(
        #[doc = concat!("Numbers of the values of [`Form::", stringify!($form), "`].")]
        pub(super) struct $name;
        impl Quants for $name {
            const REGISTERS: usize = Four::REGISTERS;

            #[inline(always)]
            unsafe fn pair<S: Simd>(s: S, group: *const u8, pair: usize) -> (S::B, S::B) {
                const BYTES: [u8; 16] = around_128(Form::$form);
                // SAFETY: the caller's.
                let (one, other) = unsafe { Four::pair(s, group, pair) };
                (s.look_up(&BYTES, one), s.look_up(&BYTES, other))
            }
        }
    )*};
}
numbered! {
    NonLinear: IQ4NL;
    FourBitFloats: MXFP4;
}

/// The values of a form, as bytes around 128.
const fn around_128(form: Form) -> [u8; 16] {
    let Some(table) = form.table() else { panic!("quants that number no values") };
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = (table[i] as u8) ^ 128;
        i += 1;
    }
    bytes
}

/// A scale in half precision for each group.
pub(super) struct PlainScales;

impl Scales for PlainScales {
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn shared<S: Simd>(s: S, _: *const u8) -> [S::F; 2] {
        [s.splat(0.0); 2]
    }

    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, _: [S::F; 2], group: *const u8, _: usize) -> S::F {
        // SAFETY: the caller's.
        unsafe { s.load_f16(group.cast()) }
    }

    #[inline(always)]
    unsafe fn min<S: Simd>(_: S, _: [S::F; 2], _: *const u8, _: usize) -> Option<S::F> {
        None
    }
}

/// A scale and a minimum in half precision for each group.
pub(super) struct PlainMinima;

impl Scales for PlainMinima {
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn shared<S: Simd>(s: S, block: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's.
        unsafe { PlainScales::shared(s, block) }
    }

    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, shared: [S::F; 2], group: *const u8, part: usize) -> S::F {
        // SAFETY: the caller's; scales come first.
        unsafe { PlainScales::scale(s, shared, group, part) }
    }

    #[inline(always)]
    unsafe fn min<S: Simd>(s: S, _: [S::F; 2], group: *const u8, _: usize) -> Option<S::F> {
        // SAFETY: the caller's; minima are behind the scales.
        Some(unsafe { s.load_f16(group.add(HALVES).cast()) })
    }
}

/// A small scale and a small minimum for each group.
pub(super) struct SmallMinima;

impl Scales for SmallMinima {
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn shared<S: Simd>(s: S, block: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's.
        unsafe { [s.load_f16(block.cast()), s.load_f16(block.add(HALVES).cast())] }
    }

    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, [scale, _]: [S::F; 2], group: *const u8, _: usize) -> S::F {
        // SAFETY: the caller's.
        s.mul(scale, unsafe { s.load_u8(group, 0, 255) })
    }

    #[inline(always)]
    unsafe fn min<S: Simd>(s: S, [_, min]: [S::F; 2], group: *const u8, _: usize) -> Option<S::F> {
        // SAFETY: the caller's; minima are behind the scales.
        Some(s.mul(min, unsafe { s.load_u8(group.add(LANES), 0, 255) }))
    }
}

/// A small scale for each group.
pub(super) struct SmallScales;

impl Scales for SmallScales {
    const PARTS: usize = 1;

    #[inline(always)]
    unsafe fn shared<S: Simd>(s: S, block: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's.
        unsafe { HalfScales::shared(s, block) }
    }

    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, shared: [S::F; 2], group: *const u8, _: usize) -> S::F {
        // SAFETY: the caller's.
        unsafe { HalfScales::scale(s, shared, group, 0) }
    }

    #[inline(always)]
    unsafe fn min<S: Simd>(_: S, _: [S::F; 2], _: *const u8, _: usize) -> Option<S::F> {
        None
    }
}

/// A small scale for each half of a group.
pub(super) struct HalfScales;

impl Scales for HalfScales {
    const PARTS: usize = 2;

    #[inline(always)]
    unsafe fn shared<S: Simd>(s: S, block: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's.
        [unsafe { s.load_f16(block.cast()) }, s.splat(0.0)]
    }

    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, [scale, _]: [S::F; 2], group: *const u8, part: usize) -> S::F {
        // SAFETY: the caller's.
        s.mul(scale, unsafe { s.load_i8(group.add(part * LANES).cast()) })
    }

    #[inline(always)]
    unsafe fn min<S: Simd>(_: S, _: [S::F; 2], _: *const u8, _: usize) -> Option<S::F> {
        None
    }
}

/// A small scale and a small minimum, of four bits each, for each half of a group.
pub(super) struct HalfMinima;

impl Scales for HalfMinima {
    const PARTS: usize = 2;

    #[inline(always)]
    unsafe fn shared<S: Simd>(s: S, block: *const u8) -> [S::F; 2] {
        // SAFETY: the caller's.
        unsafe { SmallMinima::shared(s, block) }
    }

    #[inline(always)]
    unsafe fn scale<S: Simd>(s: S, [scale, _]: [S::F; 2], group: *const u8, part: usize) -> S::F {
        // SAFETY: the caller's.
        s.mul(scale, unsafe { s.load_u8(group.add(part * LANES), 0, 15) })
    }

    #[inline(always)]
    unsafe fn min<S: Simd>(s: S, [_, min]: [S::F; 2], group: *const u8, part: usize) -> Option<S::F> {
        // SAFETY: the caller's.
        Some(s.mul(min, unsafe { s.load_u8(group.add(part * LANES), 4, 15) }))
    }
}

macro_rules! weights {
    ($($name:ident: $quants:ident, $scales:ident;)*) => {$(
        #[doc = concat!("[`Form::", stringify!($name), "`].")]
        pub(super) struct $name;
        impl Quantized for $name {
            type Quants = $quants;
            type Scales = $scales;
            const FORM: Form = Form::$name;
        }
    )*};
}
weights! {
    Q8_0: Eight, PlainScales;
    Q4_0: Four, PlainScales;
    Q4_1: Four, PlainMinima;
    Q5_0: Five, PlainScales;
    Q5_1: Five, PlainMinima;
    Q2K: Two, HalfMinima;
    Q3K: Three, HalfScales;
    Q4K: Four, SmallMinima;
    Q5K: Five, SmallMinima;
    Q6K: Six, HalfScales;
    IQ4NL: NonLinear, PlainScales;
    IQ4XS: NonLinear, SmallScales;
    MXFP4: FourBitFloats, PlainScales;
}

/// Steps of four inputs in a group, in pairs.
pub(super) const PAIRS: usize = GROUP / 8;
