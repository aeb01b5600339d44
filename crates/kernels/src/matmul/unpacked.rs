//! Quants that are unpacked to bytes once for many rows, instead of for every tile of them.
//!
//! It pays for quants of several planes. Four bits are as fast as they are, and half as much to read from the cache:
//! `cargo run --release -p duet-kernels --example gemm` has the figures.

use super::weights::{Eight, PAIRS, Quantized, Quants};
use crate::memory::{Aligned, Shared};
use crate::packed::{Form, PANELS_TOGETHER, Panel};
use crate::quantize::TILE;
use crate::simd::Simd;
use std::cell::Cell;
use std::marker::PhantomData;

/// From so many rows on.
const ROWS_MIN: usize = 4 * TILE;

/// Whether it pays for a product of so many rows.
pub(crate) fn pays(form: Form, rows: usize) -> bool {
    rows >= ROWS_MIN && !matches!(form.bits(), 4 | 8) && !form.is_float()
}

/// Weights whose quants have been unpacked; their scales are where they were.
pub(super) struct Unpacked<W>(PhantomData<W>);

impl<W: Quantized> Quantized for Unpacked<W> {
    type Quants = Eight;
    type Scales = W::Scales;
    const FORM: Form = W::FORM;
}

/// Unpacks the quants of `groups` groups to bytes at `to`.
///
/// # Safety
/// `from` has the groups' registers, and there is room for eight for each at `to`.
#[inline(always)]
unsafe fn unpack<S: Simd, Q: Quants>(s: S, from: *const u8, groups: usize, to: *mut u8) {
    for group in 0..groups {
        for pair in 0..PAIRS {
            // SAFETY: the caller's.
            unsafe {
                let (low, high) = Q::pair(s, from.add(group * Q::REGISTERS * 64), pair);
                let to = to.add((group * Eight::REGISTERS + 2 * pair) * 64);
                s.store_bytes(to, low);
                s.store_bytes(to.add(64), high);
            }
        }
    }
}

/// Bytes of the unpacked quants of a panel.
const fn unpacked_bytes(groups: usize) -> usize {
    groups * Eight::REGISTERS * 64
}

/// Memory for the unpacked quants of two panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    memory: Shared<'a, u8>,
}

/// The memory of a [`Room`], which a thread keeps from product to product: to take it from the system and give it back each
/// time would cost as much as unpacking.
#[derive(Debug)]
pub(super) struct RoomMemory(Aligned<u8>);

thread_local! {
    static KEPT: Cell<Option<RoomMemory>> = const { Cell::new(None) };
}

impl RoomMemory {
    /// This thread's, with room for panels of `groups` groups.
    pub(super) fn take(groups: usize) -> Self {
        let bytes = PANELS_TOGETHER * unpacked_bytes(groups);
        let kept = KEPT.take().filter(|kept| kept.0.len() >= bytes);
        kept.unwrap_or_else(|| Self(Aligned::zeroed(bytes)))
    }

    /// Keeps it for the next product.
    pub(super) fn keep(self) {
        KEPT.set(Some(self));
    }

    pub(super) fn room(&mut self) -> Room<'_> {
        Room { memory: Shared::new(&mut self.0) }
    }
}

impl Room<'_> {
    /// Unpacks the panels.
    ///
    /// # Safety
    /// The panels are of form `W` and valid for `groups` groups, and nobody else uses the room meanwhile.
    #[inline(always)]
    pub(super) unsafe fn unpack<S: Simd, W: Quantized, const P: usize>(
        self,
        s: S,
        panels: &[Panel; P],
        groups: usize,
    ) -> [Panel; P] {
        let mut unpacked = *panels;
        for (p, panel) in unpacked.iter_mut().enumerate() {
            let bytes = unpacked_bytes(groups);
            let to = self.memory.narrow(p * bytes..(p + 1) * bytes).as_mut_ptr();
            // SAFETY: the caller's; the room's length is checked above.
            unsafe { unpack::<S, W::Quants>(s, panel.quants, groups, to) };
            panel.quants = to;
        }
        unpacked
    }
}
