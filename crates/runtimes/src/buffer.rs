//! Memory that is lent to devices: page-aligned floats, and the tensors of one inference.
//!
//! An inference that is started takes its outputs with it and shares its inputs, so that no borrow can end while a
//! device still writes, however the handle of the inference is dropped or forgotten. Who has to be able to start again
//! on another device keeps a clone of the inputs' `Arc`.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// What memory that is lent must be aligned to, in bytes: a cache line. Devices read less well from odd addresses.
pub const ALIGNMENT: usize = 64;

/// Floats that begin at a page, so that a device that reads the host's memory need not copy them. Zeroed when made.
pub struct Buffer {
    start: NonNull<f32>,
    len: usize,
}

/// What one inference reads and writes, in the order of the graph's ports.
#[derive(Debug, Default)]
pub struct Tensors {
    /// Read; the caller may keep clones and read them as well.
    pub inputs: Vec<Arc<Buffer>>,
    /// Written.
    pub outputs: Vec<Buffer>,
}

/// A page of every system that has such devices.
const PAGE: usize = 4096;

// SAFETY: a buffer owns its memory, as a `Vec<f32>` does.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared buffer can only be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeros.
    ///
    /// # Panics
    /// If `len` floats do not fit in the address space.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout has at least a page.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start.cast()).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, len }
    }

    /// Whole pages, at least one.
    fn layout(len: usize) -> Layout {
        let bytes = len.checked_mul(size_of::<f32>()).and_then(|bytes| bytes.max(1).checked_next_multiple_of(PAGE));
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, PAGE).ok());
        layout.expect("a buffer fits in the address space")
    }
}

impl Default for Buffer {
    /// Of no floats.
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl From<&[f32]> for Buffer {
    fn from(values: &[f32]) -> Self {
        let mut buffer = Self::zeroed(values.len());
        buffer.copy_from_slice(values);
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory came from `alloc_zeroed` with the layout of the same length.
        unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: there are `len` floats at `start`, written when they were allocated, and owned by the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer[{}]", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buffers_hold_what_was_put_in_and_begin_at_pages(values in prop::collection::vec(any::<f32>(), 0..3000)) {
            let mut buffer = Buffer::zeroed(values.len());
            prop_assert_eq!(buffer.as_ptr() as usize % PAGE, 0);
            prop_assert!(buffer.iter().all(|&value| value == 0.0));
            buffer.copy_from_slice(&values);
            let copy = Buffer::from(&*values);
            let same = buffer.iter().zip(&*copy).all(|(one, other)| one.to_bits() == other.to_bits());
            prop_assert!(same && copy.len() == values.len());
        }
    }
}
