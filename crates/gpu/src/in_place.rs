//! Keys and values where the cache has them, for an adapter that shares the host's memory: nothing is copied, and a conversation
//! goes from the cores to the GPU and back as it is.
//!
//! Rows of a pass are written to the pages that the cache reserved for them, behind all positions that it holds; so a pass that fails
//! has changed nothing that counts. On an adapter with other bits the cores write them once more. Rows of draft trees go to
//! a page of the pool's that no sequence has.
//!
//! Invariant: only pages of the region that was imported are seen. A pass with another page attends to copies ([`crate::pages`]).

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::host_memory::{Grant, HostMemory};
use crate::pages::Listed;
use duet_kernels::attention::KvLayout;
use duet_kernels::memory::Region;
use duet_model::forward::{CacheRows, SpanRows, SpanSequence};
use duet_model::kv::{PAGE_TOKENS, PageOfDevice};

/// The pages of a pool's first slab.
#[derive(Debug)]
pub(crate) struct InPlace {
    region: Region,
    /// Pages that were imported.
    pages: usize,
    /// Bytes from one to the next.
    pub(crate) stride: usize,
    pub(crate) layout: KvLayout,
    pub(crate) buffer: wgpu::Buffer,
    /// Where rows of trees go.
    trees: PageOfDevice,
}

impl InPlace {
    /// Imports the memory that a sequence's pages lie in. Nothing if they lie in no region.
    ///
    /// # Errors
    /// If the driver refuses it.
    pub(crate) fn of(gpu: &Gpu, sharing: HostMemory, cache: &CacheRows<'_>) -> Result<Option<Self>, GpuError> {
        let Some(region) = cache.region() else { return Ok(None) };
        let trees = cache.page_of_device();
        let Some((buffer, _)) = gpu.import(sharing, (&region, 0), Grant::Write)? else { return Ok(None) };
        let stride = trees.stride();
        let pages = usize::try_from(buffer.size()).unwrap_or(usize::MAX) / stride;
        Ok(Some(Self { region, pages, stride, layout: cache.layout(), buffer, trees }))
    }

    /// Whether it is of the pool that a sequence's pages are of.
    pub(crate) fn is_of(&self, cache: &CacheRows<'_>) -> bool {
        self.layout == cache.layout() && cache.region().is_some_and(|region| region.is(&self.region))
    }

    /// Where the pages of each sequence are; nothing if one is not there, or if trees have too many rows.
    pub(crate) fn list(&self, rows: &SpanRows<'_>) -> Option<Vec<Listed>> {
        let page = self.trees.number_in(&self.region).filter(|&page| page < self.pages)?;
        let (mut tree, end) = (page * PAGE_TOKENS, (page + 1) * PAGE_TOKENS);
        let mut all = Vec::with_capacity(rows.sequences.len());
        for sequence in &rows.sequences {
            all.push(Listed { pages: self.pages_of(sequence)?, tree: tree as u32 });
            if sequence.paths.is_some() {
                tree += sequence.rows.len();
            }
        }
        (tree <= end).then_some(all)
    }

    fn pages_of(&self, sequence: &SpanSequence<'_>) -> Option<Vec<u32>> {
        let rows = if sequence.paths.is_some() { 0 } else { sequence.rows.len() };
        let needed = (sequence.before.as_usize() + rows).div_ceil(PAGE_TOKENS);
        let cache = sequence.cache(0, sequence.before);
        let pages = cache.numbers_in(&self.region).take(needed);
        let pages = pages.map(|page| page.filter(|&page| page < self.pages).map(|page| page as u32));
        pages.collect::<Option<Vec<_>>>().filter(|pages| pages.len() == needed)
    }

    /// Gives it up while the device may still write to it.
    pub(crate) fn leave(self) {
        self.trees.leave();
    }
}
