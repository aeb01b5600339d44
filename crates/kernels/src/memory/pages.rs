//! Pages of the system's, without an allocator between.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// Zeros that nobody else refers to. They take memory as they are written, and are given back when this is dropped.
pub(super) struct Pages {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the pages belong to no thread.
unsafe impl Send for Pages {}
// SAFETY: all that a shared one tells is where it is and how long.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least one byte of them; nothing if the system has none, as it says itself.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that there is.
        let start = unsafe { libc::mmap(null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED { None } else { Some(Self { start: NonNull::new(start)?, len }) }
    }

    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and whoever referred to it has borrowed or owned this.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}
