//! Keys and values of sequences in a GPU's own memory: copies of the cache's pages, byte for byte.
//!
//! The cache of `duet_model::kv` stays what counts. A copy is named by the lineage of what it was made of, and says for each
//! layer up to which position it is right; a span adds what is new. Rows of the pass itself are written behind that by the
//! shaders, rounded as the cache rounds them: what is attended to does not depend on who computed it. Where an adapter has the
//! CPU's bits they stay when the pass is done, and else they are read from the cache. Where drafts were given up, a request's copy
//! goes on as far as it is right; where a sequence was forked, its copy is made of the other's on the GPU.
//!
//! Invariant: a page belongs to one copy. Which copies make room is the scheduler's affair (`scheduler/src/mirrors.rs`), which says so
//! beforehand. Where there are too few pages all the same, copies that were not used for longest are given up, never one of the
//! pass's own sequences.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::recording::Recording;
use crate::staging::Piece;
use duet_kernels::attention::KvLayout;
use duet_model::forward::{CacheRows, SpanRows, SpanSequence};
use duet_model::kv::{LineageId, PAGE_TOKENS};
use duet_types::{RequestId, Tokens};
use std::sync::atomic::Ordering;

/// A layer: its place in the cache, and among those that are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) layer: usize,
    pub(crate) in_cache: usize,
    pub(crate) here: usize,
}

/// Where the pages of a sequence are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Their numbers, those of its rows among them.
    pub(crate) pages: Vec<u32>,
    /// The slot of the first row of its draft tree, if it has one.
    pub(crate) tree: u32,
}

/// The pages of all layers.
#[derive(Debug)]
pub(crate) struct Pages {
    layout: KvLayout,
    /// Each `[page][kv head]`, as the layout has a head.
    layers: Vec<wgpu::Buffer>,
    /// Bytes that a page has of a layer.
    page_bytes: usize,
    /// Where a page is on its way from one place of a buffer to another.
    between: wgpu::Buffer,
    free: Vec<u32>,
    /// The last that was used is last.
    copies: Vec<Copied>,
    capacity: usize,
}

/// A copy of one sequence's keys and values.
#[derive(Debug)]
struct Copied {
    lineage: LineageId,
    /// Whose it was when it was last used.
    request: Option<RequestId>,
    pages: Vec<u32>,
    /// Of each layer the first positions that are right.
    held: Vec<usize>,
}

impl Pages {
    /// Pages of some layers of a cache, for so many bytes in all.
    pub(crate) fn new(gpu: &Gpu, layout: KvLayout, layers: usize, bytes: u64) -> Result<Self, GpuError> {
        let page_bytes = layout.kv_heads * layout.head_parts().bytes;
        let each = (bytes / layers.max(1) as u64).min(gpu.binding_max);
        let capacity = usize::try_from(each / page_bytes.max(1) as u64).unwrap_or(0);
        let layers = (0..layers).map(|_| gpu.empty("pages", capacity * page_bytes)).collect();
        let between = gpu.empty("a page", page_bytes);
        gpu.check()?;
        let free = (0..capacity as u32).rev().collect();
        Ok(Self { layout, layers, page_bytes, between, free, copies: Vec::new(), capacity })
    }

    /// The shape of the cache that they are of.
    pub(crate) fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// How many copies there are.
    pub(crate) fn copies(&self) -> usize {
        self.copies.len()
    }

    /// A layer's pages.
    pub(crate) fn layer(&self, place: usize) -> &wgpu::Buffer {
        &self.layers[place]
    }

    /// Bytes from one page of a layer to the next.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Finds or makes a copy of each sequence, with room for its rows. The pages of each, in the sequences' order; nothing if
    /// there are not as many.
    pub(crate) fn prepare(&mut self, to: &mut Recording<'_>, rows: &SpanRows<'_>) -> Option<Vec<Listed>> {
        let needs: Vec<usize> = rows.sequences.iter().map(pages_of).collect();
        if needs.iter().sum::<usize>() > self.capacity {
            return None;
        }
        let mut ours: Vec<LineageId> = Vec::new();
        for (sequence, need) in rows.sequences.iter().zip(needs) {
            let cache = sequence.cache(0, sequence.before);
            let lineage = cache.lineage();
            ours.push(lineage);
            let mut copy = self.take(&cache, sequence.request, to, &ours);
            copy.request = sequence.request;
            while copy.pages.len() < need {
                let Some(page) = self.page(&ours) else {
                    self.copies.push(copy);
                    return None;
                };
                copy.pages.push(page);
            }
            self.free.extend(copy.pages.drain(need..));
            self.copies.push(copy);
        }
        let of = |lineage: &LineageId| self.copies.iter().rfind(|copy| copy.lineage == *lineage);
        ours.iter().map(|lineage| of(lineage).map(|copy| Listed::of(&copy.pages))).collect()
    }

    /// What a layer's pages have that a sequence's rows were written to, as pieces: pages that follow each other are one.
    pub(crate) fn written(&self, place: Place, sequence: &SpanSequence<'_>, listed: &Listed) -> Vec<Piece> {
        let floats = self.page_bytes / size_of::<f32>();
        let written = &listed.pages[sequence.before.as_usize() / PAGE_TOKENS..];
        let pieces = written.chunk_by(|one, next| one + 1 == *next).map(|run| Piece {
            buffer: self.layers[place.here].clone(),
            first: run[0] as usize * floats,
            floats: run.len() * floats,
        });
        pieces.collect()
    }

    /// Brings a sequence's copy of a layer up to a position.
    pub(crate) fn update(&mut self, gpu: &Gpu, place: Place, sequence: &SpanSequence<'_>, end: Tokens) {
        let cache = sequence.cache(place.layer, end);
        let Some(copy) = copy_of(&mut self.copies, cache.lineage()) else { return };
        let right = cache.unchanged_since(copy.lineage).as_usize();
        let from = copy.held[place.here].min(right).min(end.as_usize());
        copy.held[place.here] = sequence.before.as_usize();
        // Also where nothing is new: the cache notes how far it is copied.
        cache.note_copied();
        if from == end.as_usize() {
            return;
        }
        let first = from / PAGE_TOKENS;
        for (page, bytes) in copy.pages[first..].iter().zip(cache.pages(first)) {
            gpu.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            gpu.queue.write_buffer(&self.layers[place.here], u64::from(*page) * self.page_bytes as u64, bytes);
        }
    }

    /// Rows that follow each other were written to a layer of a sequence's copy, and are what the cache has of them.
    pub(crate) fn keep(&mut self, place: Place, sequence: &SpanSequence<'_>) {
        let end = sequence.before + Tokens(sequence.rows.len() as u32);
        let cache = sequence.cache(place.layer, end);
        if let Some(copy) = copy_of(&mut self.copies, cache.lineage()) {
            copy.held[place.here] = end.as_usize();
            cache.note_copied();
        }
    }

    /// The copy of this cache; or the one that its request had; or one of what it has in common with another; or an empty one.
    fn take(
        &mut self,
        cache: &CacheRows<'_>,
        request: Option<RequestId>,
        to: &mut Recording<'_>,
        ours: &[LineageId],
    ) -> Copied {
        let lineage = cache.lineage();
        if let Some(at) = self.copies.iter().position(|copy| copy.lineage == lineage) {
            return self.copies.remove(at);
        }
        let empty = Copied { lineage, request: None, pages: Vec::new(), held: vec![0; self.layers.len()] };
        let common_with = |copy: &Copied| cache.unchanged_since(copy.lineage).as_usize();
        let held_of = |copy: &Copied, common: usize| copy.held.iter().map(|&held| held.min(common)).collect::<Vec<_>>();
        // Drafts that were given up gave it another lineage; it has no other copy, whoever else has as much in common.
        if let Some(at) = self.copies.iter().position(|copy| request.is_some() && copy.request == request) {
            let own = self.copies.remove(at);
            let held = held_of(&own, common_with(&own));
            return Copied { lineage, held, ..own };
        }
        let akin = |(at, copy): (usize, &Copied)| Some((common_with(copy), at)).filter(|(common, _)| *common > 0);
        let Some((common, at)) = self.copies.iter().enumerate().filter_map(akin).max() else { return empty };
        let held = held_of(&self.copies[at], common);
        let whole = held.iter().copied().max().unwrap_or(0).div_ceil(PAGE_TOKENS);
        let from = self.copies[at].pages[..whole].to_vec();
        let mut others = ours.to_vec();
        others.push(self.copies[at].lineage);
        let mut pages = Vec::with_capacity(whole);
        for &page in &from {
            let Some(copied) = self.page(&others) else {
                // For both there are too few pages: it is read from the cache.
                self.free.extend(pages);
                return empty;
            };
            let bytes = self.page_bytes as u64;
            for layer in &self.layers {
                to.copy_within(layer, &self.between, u64::from(page) * bytes, u64::from(copied) * bytes, bytes);
            }
            pages.push(copied);
        }
        Copied { pages, held, ..empty }
    }

    /// Gives up the copies of some requests.
    pub(crate) fn drop_of(&mut self, requests: &[RequestId]) {
        let is_of = |copy: &mut Copied| copy.request.is_some_and(|request| requests.contains(&request));
        for copy in self.copies.extract_if(.., is_of) {
            self.free.extend(copy.pages);
        }
    }

    /// A page that is free, or becomes so because a copy that is none of these is given up.
    fn page(&mut self, keep: &[LineageId]) -> Option<u32> {
        if self.free.is_empty() {
            let at = self.copies.iter().position(|copy| !keep.contains(&copy.lineage))?;
            self.free.extend(self.copies.remove(at).pages);
        }
        self.free.pop()
    }
}

impl Listed {
    /// Those of a tree have a page of their own, the last.
    fn of(pages: &[u32]) -> Self {
        Self { pages: pages.to_vec(), tree: pages.last().map_or(0, |page| page * PAGE_TOKENS as u32) }
    }
}

/// Pages that a sequence and its rows take: those of a tree have one of their own, the last.
fn pages_of(sequence: &SpanSequence<'_>) -> usize {
    let before = sequence.before.as_usize();
    match sequence.paths {
        Some(_) => before.div_ceil(PAGE_TOKENS) + 1,
        None => (before + sequence.rows.len()).div_ceil(PAGE_TOKENS),
    }
}

fn copy_of(copies: &mut [Copied], lineage: LineageId) -> Option<&mut Copied> {
    copies.iter_mut().rfind(|copy| copy.lineage == lineage)
}
