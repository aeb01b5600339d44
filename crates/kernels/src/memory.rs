//! Memory that kernels work in: aligned buffers, and slices that a crew writes together.

mod give_back;
#[cfg(unix)]
mod pages;
mod region;
mod spare;

pub use give_back::{FreedAtOnce, give_back_freed};
pub use region::Region;
pub use spare::Spare;

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};

/// One cache line, and one AVX-512 register.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Plain data.
///
/// # Safety
/// Any bytes are a value of it, and it has no padding.
pub unsafe trait Plain: Copy + Default + Send + Sync + 'static {}

macro_rules! numbers {
    ($($number:ty)*) => {
        // SAFETY: any bytes are a number.
        $(unsafe impl Plain for $number {})*
    };
}
numbers!(u8 i8 u16 u32 i32 f32);

/// A zeroed buffer that begins at a cache line and ends at one, and that nobody else refers to.
///
/// Large ones take memory from the system when they are first written, a huge page at a time: weights are read once a
/// token, end to end, and small pages would spend a tenth of that time on page walks; and where a hypervisor hands out
/// memory, a fault costs as much as writing the page.
pub struct Aligned<T> {
    start: NonNull<T>,
    len: usize,
    lines: usize,
    /// Keeps the memory.
    owner: Arc<Mapping>,
}

/// Memory that one or several buffers lie in. Only the buffers refer to what is in it.
enum Mapping {
    /// A small one: zeros of the allocator's.
    Allocated(Vec<u8>),
    /// A large one: the system's own zeros, which are the system's again once it is dropped. An allocator would keep them for
    /// whoever asks next, and behind a model that was packed these are whole layers.
    #[cfg(unix)]
    System {
        pages: pages::Owned,
        /// Where the first of the buffers begins, in bytes: at a page of the system's.
        first: usize,
        /// Whether parts of it were given back.
        is_in_parts: AtomicBool,
    },
}

// SAFETY: a buffer is the only one that refers to its part of the mapping, so it may go where a `Vec<T>` may.
unsafe impl<T: Plain> Send for Aligned<T> {}
// SAFETY: as above; a shared buffer can only be read.
unsafe impl<T: Plain> Sync for Aligned<T> {}

impl<T: Plain> Aligned<T> {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut parts = Self::slab(1, len);
        parts.pop().unwrap_or_else(|| unreachable!("a slab of one part has one"))
    }

    /// `len` zeros that are a [region](Self::region), however few they are; nothing if the system gives no memory for them.
    #[must_use]
    pub fn of_the_system(len: usize) -> Option<Self> {
        let lines = len.checked_mul(size_of::<T>())?.div_ceil(size_of::<Line>());
        let bytes = lines.checked_mul(size_of::<Line>())?.max(HUGE_PAGE);
        let (mapping, start) = Mapping::of_the_system(bytes.checked_add(HUGE_PAGE)?)?;
        // SAFETY: it has as many bytes, from `start` on.
        let (mapping, start) = unsafe { mapping.begin(start, HUGE_PAGE, bytes) };
        Some(Self { start: start.cast(), len, lines, owner: Arc::new(mapping) })
    }

    /// Several buffers of `len` zeros that share huge pages.
    ///
    /// # Panics
    /// If they are more than can be addressed.
    #[must_use]
    pub fn slab(count: usize, len: usize) -> Vec<Self> {
        const MORE: &str = "buffers of more bytes than can be addressed";
        let lines = len.checked_mul(size_of::<T>()).expect(MORE).div_ceil(size_of::<Line>());
        let stride = lines * size_of::<Line>();
        // With room for alignment.
        let all = count.checked_mul(stride).filter(|all| *all < isize::MAX as usize - HUGE_PAGE).expect(MORE);
        let (mapping, start) = Mapping::zeroed(all);
        let owner = Arc::new(mapping);
        let parts = (0..count).map(|part| {
            // SAFETY: `start` has `count * stride` bytes behind it, and `part < count`. The parts do not overlap.
            let start = unsafe { start.add(part * stride) }.cast();
            Self { start, len, lines, owner: Arc::clone(&owner) }
        });
        parts.collect()
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines * size_of::<Line>()
    }
}

impl Aligned<u8> {
    /// Makes zeros of a part. Memory of the system's that lies in it is the system's again, until it is written.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn clear(&mut self, range: Range<usize>) {
        let is_systems = self.owner.is_taken_in_parts();
        let part = &mut self[range];
        #[cfg(unix)]
        if is_systems {
            return pages::clear_part(part);
        }
        let _ = is_systems;
        part.fill(0);
    }
}

impl Mapping {
    /// `bytes` zeros, and where they begin: at a huge page if they fill one, at a cache line otherwise.
    fn zeroed(bytes: usize) -> (Self, NonNull<u8>) {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { size_of::<Line>() };
        let of_the_system = (bytes + align >= HUGE_PAGE).then(|| Self::of_the_system(bytes + align)).flatten();
        let (mapping, start) = of_the_system.unwrap_or_else(|| {
            let mut memory = vec![0_u8; bytes + align];
            let start = memory.as_mut_ptr();
            (Self::Allocated(memory), start)
        });
        // SAFETY: it has `bytes + align` bytes, from `start` on.
        unsafe { mapping.begin(start, align, bytes) }
    }

    /// Zeros of the system's own, and where they are; nothing if it gives none.
    #[cfg(unix)]
    fn of_the_system(bytes: usize) -> Option<(Self, *mut u8)> {
        let pages = pages::Owned::zeroed(bytes)?;
        let start = pages.start();
        Some((Self::System { pages, first: 0, is_in_parts: AtomicBool::new(false) }, start))
    }

    /// Here memory is the allocator's.
    #[cfg(not(unix))]
    fn of_the_system(_bytes: usize) -> Option<(Self, *mut u8)> {
        None
    }

    /// Where the first of its bytes is that has the alignment: there `bytes` are to be used.
    ///
    /// # Safety
    /// It begins at `start`, and has `bytes + align` bytes there.
    unsafe fn begin(mut self, start: *mut u8, align: usize, bytes: usize) -> (Self, NonNull<u8>) {
        let offset = start.align_offset(align).min(align);
        #[cfg(unix)]
        if let Self::System { first, .. } = &mut self {
            *first = offset;
        }
        // SAFETY: the caller's promise, and `offset <= align`, so that `bytes` are left behind it.
        let start = unsafe { start.add(offset) };
        advise_huge_pages(start, bytes);
        // A vector's pointer is never null, and neither is one into its memory.
        (self, NonNull::new(start).unwrap_or(NonNull::dangling()))
    }

    /// Whether memory is the system's, which may have parts of it back. From then on it comes in small pages: where one of a
    /// huge page's is in use, the kernel would give memory to all of it again.
    fn is_taken_in_parts(&self) -> bool {
        match self {
            Self::Allocated(_) => false,
            #[cfg(unix)]
            Self::System { pages, is_in_parts, .. } => {
                if !is_in_parts.swap(true, Ordering::Relaxed) {
                    pages.want_small();
                }
                true
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Allocated(memory) => memory.len(),
            #[cfg(unix)]
            Self::System { pages, .. } => pages.len(),
        }
    }
}

impl<T: Plain> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: there are at least `len` values of `T` at `start`, aligned to 64 bytes; any bytes are a `T` (`Plain`).
        // They live as long as the owner does, and nobody else refers to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> AsRef<[T]> for Aligned<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Plain> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> std::fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aligned<{}>[{}]", std::any::type_name::<T>(), self.len)
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping[{}]", self.len())
    }
}

fn advise_huge_pages(start: *const u8, len: usize) {
    #[cfg(target_os = "linux")]
    if len >= HUGE_PAGE {
        // SAFETY: the range begins at a page and lies within our own live allocation, and the advice does not change its
        // contents. Where it is refused, small pages serve.
        unsafe { libc::madvise(start as *mut libc::c_void, len / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

/// What the system calls a huge page on every machine that duet knows.
const HUGE_PAGE: usize = 2 << 20;

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

    #[cfg(target_os = "linux")]
    #[test]
    fn large_buffers_are_the_systems_again_once_they_are_dropped() {
        fn resident() -> usize {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() << 12
        }
        const BYTES: usize = 16 << 20;
        let filled = |byte: u8| {
            let mut buffer = Aligned::<u8>::zeroed(BYTES);
            assert!(buffer.iter().step_by(4096).all(|&zero| zero == 0));
            buffer.fill(byte);
            buffer
        };
        // A large block that was freed teaches glibc to keep the next ones of its size.
        drop(std::hint::black_box(vec![1_u8; 24 << 20]));
        // In threads, whose allocators keep what is freed; one buffer among them stays, and what is in it.
        let buffers = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..9).map(|byte| scope.spawn(move || filled(byte))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let full = resident();
        let kept = buffers.into_iter().nth(4).unwrap();
        assert!(resident() + 6 * BYTES < full, "{} of {full} bytes are left", resident());
        assert!(kept.iter().all(|&byte| byte == 5));
    }

    #[test]
    fn parts_are_cleared_and_nothing_else_is() {
        for (bytes, range) in [(100, 3..70), (8 << 20, 5_000..7_000_001), (8 << 20, 4096..4097), (8 << 20, 9..9)] {
            let mut buffer = Aligned::<u8>::zeroed(bytes);
            buffer.fill(7);
            buffer.clear(range.clone());
            let expected = |at: usize| if range.contains(&at) { 0 } else { 7 };
            assert!(buffer.iter().enumerate().all(|(at, &byte)| byte == expected(at)), "{range:?} of {bytes}");
            buffer.fill(9);
            assert!(buffer.iter().all(|&byte| byte == 9));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_of_a_part_that_is_cleared_is_the_systems() {
        const BYTES: usize = 64 << 20;
        let mut buffer = Aligned::<u8>::zeroed(BYTES);
        buffer.fill(1);
        let resident = |buffer: &Aligned<u8>| {
            let mut there = vec![0_u8; BYTES / 4096];
            // SAFETY: the buffer begins at a page of the system's, and `there` has a byte for each of its pages.
            let told = unsafe { libc::mincore(buffer.as_ptr() as *mut libc::c_void, BYTES, there.as_mut_ptr()) };
            assert_eq!(told, 0);
            there.into_iter().filter(|there| there & 1 == 1).count() * 4096
        };
        assert_eq!(resident(&buffer), BYTES);
        buffer.clear(BYTES / 4..BYTES);
        assert_eq!(resident(&buffer), BYTES / 4);
    }

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

    #[cfg(unix)]
    #[test]
    fn memory_of_the_system_is_a_region_however_little_and_nothing_if_there_is_none() {
        for len in [1, 100, 3 << 20] {
            let mut buffer = Aligned::<u8>::of_the_system(len).unwrap();
            assert!(buffer.len() == len && buffer.iter().all(|&byte| byte == 0));
            buffer.fill(3);
            let region = buffer.region().unwrap();
            assert!(region.bytes() >= len.max(HUGE_PAGE) && region.start().addr().get().is_multiple_of(HUGE_PAGE));
            assert_eq!(buffer.place_in(&region), Some(0));
        }
        assert!(
            [1 << 60, usize::MAX, usize::MAX - 4096].into_iter().all(|len| Aligned::<u8>::of_the_system(len).is_none())
        );
        assert!(Aligned::<f32>::of_the_system(1 << 62).is_none());
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
