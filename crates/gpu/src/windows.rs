//! Windows into memory of the host's that an adapter was given: regions, imported a part at a time.

use duet_kernels::memory::Region;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// What an adapter was given of the host's memory.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    pub(crate) open: Mutex<Vec<Window>>,
    /// The driver has refused memory: it is not asked again.
    pub(crate) refused: AtomicBool,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) region: Region,
    /// Where it begins there.
    pub(crate) from: usize,
    pub(crate) buffer: wgpu::Buffer,
}

impl Window {
    /// Where a part of a region begins in it, if all of that lies there.
    pub(crate) fn place_of(&self, region: &Region, part: &Range<usize>) -> Option<u64> {
        let place = part.start.checked_sub(self.from).filter(|_| self.region.is(region))? as u64;
        (place + part.len() as u64 <= self.buffer.size()).then_some(place)
    }
}
