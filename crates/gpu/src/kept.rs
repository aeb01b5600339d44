//! Keys and values as the shaders of a span see them: in the cache itself where the adapter shares the host's memory, and else, or
//! where the cache's page lies elsewhere, in copies.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::host_memory::HostMemory;
use crate::in_place::InPlace;
use crate::pages::{Listed, Pages, Place};
use crate::prepared::Prepared;
use crate::recording::Recording;
use duet_kernels::attention::KvLayout;
use duet_model::forward::{SpanRows, SpanSequence};
use duet_model::kv::PAGE_TOKENS;
use duet_types::{RequestId, Tokens};

/// The pages of all layers that are there.
#[derive(Debug)]
pub(crate) struct Kept {
    /// How the cache is imported, until the driver refuses that: a trial of some megabytes may pass where it does not.
    sharing: Option<HostMemory>,
    in_place: Option<InPlace>,
    copies: Option<Pages>,
    /// What the pass under way attends to.
    seen: Seen,
    /// Layers, and what their copies may take.
    layers: usize,
    copy_bytes: u64,
    /// Launches that are bound to them, and those of the head.
    pub(crate) prepared: Prepared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    InPlace,
    Copies,
}

/// The pages of a layer, as shaders bind them.
pub(crate) struct View<'a> {
    pub(crate) buffer: &'a wgpu::Buffer,
    pub(crate) layout: &'a KvLayout,
    /// Words from one page to the next, and where the layer begins in each.
    pub(crate) page_words: u32,
    pub(crate) first_word: u32,
}

impl Kept {
    pub(crate) fn new(sharing: Option<HostMemory>, layers: usize, copy_bytes: u64) -> Self {
        Self {
            sharing,
            in_place: None,
            copies: None,
            seen: Seen::Copies,
            layers,
            copy_bytes,
            prepared: Prepared::default(),
        }
    }

    /// How many sequences there are copies of.
    pub(crate) fn copies(&self) -> usize {
        self.copies.as_ref().map_or(0, Pages::copies)
    }

    /// Where the pages of each sequence are, with room for its rows; nothing if there is not as much.
    ///
    /// # Errors
    /// [`GpuError`].
    pub(crate) fn prepare(&mut self, gpu: &Gpu, rows: &SpanRows<'_>) -> Result<Option<Vec<Listed>>, GpuError> {
        let first = rows.sequences.first().ok_or(GpuError::Model("a pass without sequences"))?;
        let cache = first.cache(0, Tokens::ZERO);
        if self.in_place.as_ref().is_none_or(|in_place| !in_place.is_of(&cache)) {
            if self.in_place.is_some() {
                // Memory that was imported is not freed while something is bound to it.
                self.prepared.forget();
                self.in_place = None;
            }
            self.in_place = self.sharing.and_then(|sharing| {
                InPlace::of(gpu, sharing, &cache).unwrap_or_else(|why| {
                    tracing::warn!("keys and values are copied to the GPU after all: {why}");
                    self.sharing = None;
                    None
                })
            });
        }
        if let Some(listed) = self.in_place.as_ref().and_then(|in_place| in_place.list(rows)) {
            self.see(Seen::InPlace);
            return Ok(Some(listed));
        }
        self.see(Seen::Copies);
        let copies = self.copies.take().filter(|copies| *copies.layout() == cache.layout());
        let copies = match copies {
            Some(copies) => copies,
            None => {
                self.prepared.forget();
                Pages::new(gpu, cache.layout(), self.layers, self.copy_bytes)?
            }
        };
        let mut forks = Recording::new(gpu);
        let listed = self.copies.insert(copies).prepare(&mut forks, rows);
        if listed.is_some() {
            // Before anything is written to what was copied.
            forks.submit_any();
        }
        Ok(listed)
    }

    /// Launches are bound to what was seen when they were made.
    fn see(&mut self, seen: Seen) {
        if self.seen != seen {
            self.prepared.forget();
            self.seen = seen;
        }
    }

    /// A layer's pages.
    ///
    /// # Errors
    /// If no pass was prepared.
    pub(crate) fn view(&self, place: Place) -> Result<View<'_>, GpuError> {
        let words = |bytes: usize| (bytes / 4) as u32;
        match (self.seen, &self.in_place, &self.copies) {
            (Seen::InPlace, Some(InPlace { buffer, layout, stride, .. }), _) => Ok(View {
                buffer,
                layout,
                page_words: words(*stride),
                first_word: words(layout.layer_start(place.in_cache)),
            }),
            (Seen::Copies, _, Some(copies)) => Ok(View {
                buffer: copies.layer(place.here),
                layout: copies.layout(),
                page_words: words(copies.page_bytes()),
                first_word: 0,
            }),
            _ => Err(GpuError::Model("a pass without pages")),
        }
    }

    /// Brings a sequence's copy of a layer up to a position, if it is copies that are attended to.
    pub(crate) fn update(&mut self, gpu: &Gpu, place: Place, sequence: &SpanSequence<'_>, end: Tokens) {
        if let Some(copies) = self.copies_seen() {
            copies.update(gpu, place, sequence, end);
        }
    }

    /// Rows that follow each other were written to a layer, and are what the cache has of them.
    pub(crate) fn keep(&mut self, place: Place, sequence: &SpanSequence<'_>) {
        if let Some(copies) = self.copies_seen() {
            copies.keep(place, sequence);
        }
    }

    fn copies_seen(&mut self) -> Option<&mut Pages> {
        self.copies.as_mut().filter(|_| self.seen == Seen::Copies)
    }

    /// Whether what shaders wrote is in the cache itself, for all rows of a pass: rows of trees are kept elsewhere.
    pub(crate) fn is_stored(&self, rows: &SpanRows<'_>) -> bool {
        self.seen == Seen::InPlace && rows.sequences.iter().all(|sequence| sequence.paths.is_none())
    }

    /// The copies whose pages are to be read back in place of a pass's rows: where that is less, and no row is a tree's.
    pub(crate) fn read_by_page(&self, rows: &SpanRows<'_>, listed: &[Listed], width: usize) -> Option<&Pages> {
        let copies = self.copies.as_ref().filter(|_| self.seen == Seen::Copies)?;
        let is_tree = rows.sequences.iter().any(|sequence| sequence.paths.is_some());
        let first = |sequence: &SpanSequence<'_>| sequence.before.as_usize() / PAGE_TOKENS;
        let pages: usize =
            rows.sequences.iter().zip(listed).map(|(sequence, listed)| listed.pages.len() - first(sequence)).sum();
        (!is_tree && pages * copies.page_bytes() < width * size_of::<f32>()).then_some(copies)
    }

    /// Gives up copies of requests.
    pub(crate) fn drop_copies(&mut self, requests: &[RequestId]) {
        if let Some(copies) = &mut self.copies {
            copies.drop_of(requests);
        }
    }

    /// Gives the cache's memory up while the device may still write to it.
    pub(crate) fn leave(&mut self) {
        if let Some(in_place) = self.in_place.take() {
            in_place.leave();
        }
    }
}
