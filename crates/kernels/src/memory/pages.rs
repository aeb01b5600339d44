//! Pages of the system's, without an allocator between.

use super::spare;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// Memory that nobody else refers to, and that the system has back only if it is [given](Self::give_back).
pub(super) struct Pages {
    start: NonNull<c_void>,
    len: usize,
}

/// Zeros that nobody else refers to. They take memory as they are written; when this is dropped they are given back, unless the
/// thread [keeps](super::Spare) them.
pub(super) struct Owned(Option<Pages>);

// SAFETY: the pages belong to no thread.
unsafe impl Send for Pages {}
// SAFETY: all that a shared one tells is where it is and how long.
unsafe impl Sync for Pages {}

impl Owned {
    /// At least so many bytes: some that the thread kept, or else one byte of new ones at least; nothing if the system has none,
    /// as it says itself.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        spare::take(len).or_else(|| Pages::new(len)).map(|pages| Self(Some(pages)))
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.0.as_ref().map_or(null_mut(), |pages| pages.start.as_ptr().cast())
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Pages::len)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(pages) = self.0.take().and_then(spare::keep) {
            pages.give_back();
        }
    }
}

impl Pages {
    /// New ones, which are zeros.
    fn new(len: usize) -> Option<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that there is.
        let start = unsafe { libc::mmap(null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED { None } else { Some(Self { start: NonNull::new(start)?, len }) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Makes them zeros again.
    pub(super) fn clear(&mut self) {
        // SAFETY: this is the whole mapping, which may be written, and nobody else refers to it.
        unsafe { self.start.as_ptr().cast::<u8>().write_bytes(0, self.len) };
    }

    /// Gives them back to the system.
    pub(super) fn give_back(self) {
        // SAFETY: this is the whole mapping, and whoever referred to it has borrowed or owned this.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}
