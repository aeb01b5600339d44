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

    /// Tells the system not to put them together to huge ones.
    pub(super) fn want_small(&self) {
        #[cfg(target_os = "linux")]
        if let Some(pages) = &self.0 {
            // SAFETY: this is the whole mapping, and the advice does not change what is in it. Where it is refused, nothing is.
            unsafe { libc::madvise(pages.start.as_ptr(), pages.len, libc::MADV_NOHUGEPAGE) };
        }
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

/// Makes zeros of a part of [owned](Owned) ones; those that lie in it whole take no memory until they are written.
pub(super) fn clear_part(part: &mut [u8]) {
    // SAFETY: a question that takes no pointer.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1 << 16);
    let (before, rest) = part.split_at_mut(part.as_ptr().align_offset(page).min(part.len()));
    let (whole, behind) = rest.split_at_mut(rest.len() / page * page);
    before.fill(0);
    behind.fill(0);
    if !whole.is_empty() && !is_taken_back(whole) {
        whole.fill(0);
    }
}

/// Whether the system took whole pages back, and has zeros in their place.
#[cfg(target_os = "linux")]
fn is_taken_back(whole: &mut [u8]) -> bool {
    // SAFETY: whole pages of a private mapping, borrowed exclusively: they are zeros from here on, and stay mapped.
    unsafe { libc::madvise(whole.as_mut_ptr().cast(), whole.len(), libc::MADV_DONTNEED) == 0 }
}

/// Whether the system took whole pages back, and has zeros in their place.
#[cfg(not(target_os = "linux"))]
fn is_taken_back(whole: &mut [u8]) -> bool {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: whole pages of a private mapping, borrowed exclusively, for which new ones are put: zeros, mapped likewise.
    unsafe { libc::mmap(whole.as_mut_ptr().cast(), whole.len(), access, kind, -1, 0) != libc::MAP_FAILED }
}
