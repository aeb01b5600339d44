//! Memory that kernels work in: aligned buffers, and slices that a crew writes together.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

/// One cache line, and one AVX-512 register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Plain data: any bytes are a value, and it has no padding.
pub trait Plain: Copy + Default + Send + Sync + 'static {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for f32 {}

/// A zeroed buffer that begins at a cache line and ends at one.
pub struct Aligned<T> {
    lines: Vec<Line>,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Plain> Aligned<T> {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        let lines = vec![Line([0; 64]); lines];
        advise_huge_pages(lines.as_ptr().cast(), lines.len() * size_of::<Line>());
        Self { lines, len, kind: PhantomData }
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

impl<T: Plain> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the lines hold at least `len` values of `T`, aligned to 64 bytes; any bytes are a `T` (`Plain`).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<T: Plain> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl<T> std::fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aligned<{}>[{}]", std::any::type_name::<T>(), self.len)
    }
}

/// Weights are read once a token, end to end: small pages would spend a tenth of that time on page walks.
fn advise_huge_pages(start: *const u8, len: usize) {
    #[cfg(target_os = "linux")]
    {
        const HUGE: usize = 2 << 20;
        let first = (start as usize).next_multiple_of(4096);
        let last = (start as usize + len) / 4096 * 4096;
        if len >= HUGE && last > first {
            // SAFETY: the range lies within our own live allocation, and the advice does not change its contents.
            // Where it is refused, small pages serve.
            unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

/// A slice whose parts the members of a crew read and write at the same time.
///
/// It hands out parts without checking that they are disjoint: that is the promise of each kernel that uses it, kept
/// by giving every part to one worker between two [`crate::crew::Worker::sync`]s.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a borrow of plain data; who reads and writes what when is promised by the callers of `part*`.
unsafe impl<T: Plain> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Shared<'_, T> {}

impl<'a, T: Plain> Shared<'a, T> {
    /// Shares `slice` for as long as it is borrowed.
    #[must_use]
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// Its length.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it, shared as well.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[must_use]
    pub fn narrow(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds.
        Self { start: unsafe { self.start.add(range.start) }, len: range.len(), owner: PhantomData }
    }

    /// Where it begins.
    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.start
    }

    /// A part to read.
    ///
    /// # Safety
    /// Nobody writes to this part while the borrow lives.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[must_use]
    pub unsafe fn part(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds, and unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// A part to write.
    ///
    /// # Safety
    /// Nobody else reads or writes this part while the borrow lives.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[must_use]
    pub unsafe fn part_mut(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds, and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_and_aligned() {
        for len in [0, 1, 15, 16, 17, 1000] {
            let mut buffer = Aligned::<f32>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&value| value == 0.0));
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
            buffer.fill(1.5);
            assert_eq!(buffer.iter().sum::<f32>(), 1.5 * len as f32);
        }
    }

    #[test]
    fn parts_are_the_slice() {
        let mut data = [1, 2, 3, 4];
        let shared = Shared::new(&mut data);
        // SAFETY: one thread, disjoint parts.
        unsafe {
            shared.part_mut(2..4).copy_from_slice(&[7, 8]);
            assert_eq!(shared.part(1..3), [2, 7]);
        }
        assert_eq!(data, [1, 2, 7, 8]);
    }
}
