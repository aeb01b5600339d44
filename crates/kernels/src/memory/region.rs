//! Memory of the system's that buffers lie in, as a device sees it that reads and writes the host's memory in place.
//!
//! A device is told where it is; what it does there is none of the compiler's knowledge. Who lets it write answers for it that
//! nobody has borrowed those bytes meanwhile.

use super::{Aligned, Mapping, Plain};
use std::ptr::NonNull;
use std::sync::Arc;

/// All buffers of one slab, from the first one's beginning to the mapping's end. The memory stays while this does.
#[derive(Clone)]
pub struct Region {
    owner: Arc<Mapping>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all that it tells is where memory is and how long; it keeps that memory, which belongs to no thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Where the first buffer begins: at a page of the system's.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes from there on.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where these bytes begin in it; nothing if they lie elsewhere.
    #[must_use]
    pub fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        let place = bytes.as_ptr().addr().checked_sub(self.start.addr().get())?;
        (place.checked_add(bytes.len())? <= self.bytes).then_some(place)
    }

    /// Whether both are the same memory.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region[{}]", self.bytes)
    }
}

impl<T: Plain> Aligned<T> {
    /// The region that it lies in; none if its memory is the allocator's, as that of small slabs is.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        match &*self.owner {
            Mapping::Allocated(_) => None,
            #[cfg(unix)]
            Mapping::System { pages, first, .. } => Some(Region {
                owner: Arc::clone(&self.owner),
                // SAFETY: the first buffer begins within the mapping.
                start: NonNull::new(unsafe { pages.start().add(*first) })?,
                bytes: pages.len() - first,
            }),
        }
    }

    /// Where it begins in a region, in bytes; nothing if it lies elsewhere.
    #[must_use]
    pub fn place_in(&self, region: &Region) -> Option<usize> {
        Arc::ptr_eq(&self.owner, &region.owner).then(|| self.start.addr().get() - region.start.addr().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_large_slab_is_a_region_in_which_its_buffers_follow_each_other() {
        let mut buffers = Aligned::<u8>::slab(5, 1 << 20);
        let region = buffers[3].region().unwrap();
        assert!(region.bytes() >= 5 << 20 && region.start().addr().get().is_multiple_of(4096));
        let places: Vec<_> = buffers.iter().map(|buffer| buffer.place_in(&region)).collect();
        assert_eq!(places, (0..5).map(|at| Some(at << 20)).collect::<Vec<_>>());
        let within = region.place_of(&buffers[2][10..1 << 20]);
        assert_eq!((within, region.place_of(&[1, 2, 3])), (Some((2 << 20) + 10), None));
        let other = Aligned::<u8>::zeroed(4 << 20);
        assert_eq!(other.place_in(&region), None);
        assert!(region.is(&buffers[0].region().unwrap()) && !region.is(&other.region().unwrap()));
        // The memory stays, whoever wrote to it.
        buffers[4][7] = 9;
        drop(buffers);
        // SAFETY: within the region, which lives, and nobody has borrowed it.
        assert_eq!(unsafe { region.start().add((4 << 20) + 7).read() }, 9);
    }

    #[test]
    fn a_small_buffer_has_no_region() {
        assert!(Aligned::<f32>::zeroed(100).region().is_none());
    }
}
