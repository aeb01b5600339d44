//! Attention of some rows of a sequence over its paged keys and values.
//!
//! For each row and head: softmax(q · k / √d) · v over the row's visible positions. The context is cut, by absolute
//! position, into pages of [`PAGE`] and spans of [`SPAN_PAGES`] pages; within a span softmax runs online page by page,
//! and the spans' partial results are merged in order, behind the head's sink where it has one. **Invariant:** this order is the same whether one worker walks all
//! spans or several share them, and masked positions change nothing to the bit, so a row's result depends neither on
//! the crew nor on the other rows of its tile.

mod fetch;
mod halves;
mod key_bias;
mod layer;
mod layout;
mod partial;
mod quads;
mod reading;
mod rotation;
mod softmax;
mod tile;
mod tile_memory;

pub use key_bias::{KeyBias, PageAngles, TurnedBias};
pub use layout::{HeadParts, KvFormat, KvLayout, Lasting, PAGE, PageMemory, WideLayers};
pub use partial::SPAN_PAGES;

pub(crate) use layer::LayerLayout;
pub(crate) use layout::{PageWriter, Slot};
pub(crate) use partial::Partials;

use crate::isa::Isa;
use crate::memory::Shared;
use crate::simd::{Kernel, Simd};
use partial::{merge_spans, spans_of};
use std::ops::Range;
use tile::{ROWS, TileWork};
use tile_memory::TileMemory;

/// Widest head.
pub const HEAD_DIM_MAX: usize = 512;

/// What the rows of one sequence attend to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// How pages are laid out.
    pub(crate) of_pages: &'a KvLayout,
    /// Where in them the layer's keys and values lie.
    pub(crate) layout: LayerLayout,
    /// The sequence's pages, in order.
    pub(crate) pages: &'a [&'a PageMemory],
    /// Only this many positions up to and including its own are visible to a row; `None`: all.
    pub(crate) window: Option<usize>,
    /// Scores are multiplied with this.
    pub(crate) scale: f32,
    /// Of each query head a score of no position.
    pub(crate) sinks: Option<&'a [f32]>,
    /// What keys of eight bits are without.
    pub(crate) key_bias: Option<TurnedBias<'a>>,
}

/// The rows of a draft tree. Row `i`'s key and value lie in slot `i` of a page of their own, and it sees, after the
/// context, only the rows on its path from the root.
///
/// **Invariant:** its result is, to the bit, that of the same path fed one row after the other: scores are put where the
/// path's positions would be, and a path's rows have ascending slots, so values are added in the same order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    /// The rows' keys and values.
    pub(crate) page: &'a PageMemory,
    /// Each row's path, itself last; ascending.
    pub(crate) paths: &'a [Vec<usize>],
}

/// Rows of one sequence that follow each other: row `i` is position `start + i` and sees all up to itself. In a tree,
/// `start` is the end of the context, and a row's position is given by its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queries<'a> {
    /// Rows of queries, all heads side by side; results are written to the same places of `out`.
    pub(crate) values: Shared<'a, f32>,
    /// Results.
    pub(crate) out: Shared<'a, f32>,
    /// From one row to the next in `values`.
    pub(crate) stride: usize,
    /// From one row to the next in `out`.
    pub(crate) out_stride: usize,
    /// The first row in both.
    pub(crate) first_row: usize,
    /// How many rows.
    pub(crate) rows: usize,
    /// Position of the first row.
    pub(crate) start: usize,
    /// Query heads.
    pub(crate) heads: usize,
    /// Present if the rows are a tree.
    pub(crate) branch: Option<Branch<'a>>,
}

impl Queries<'_> {
    /// Positions that row `row` sees, counted from 0 and ending with its own.
    fn visible(&self, row: usize) -> usize {
        self.start + self.branch.map_or(row + 1, |branch| branch.paths[row].len())
    }

    /// Positions that any row sees.
    fn longest(&self) -> usize {
        match self.branch {
            None => self.start + self.rows,
            Some(_) => (0..self.rows).map(|row| self.visible(row)).max().unwrap_or(0),
        }
    }

    /// Query heads that share a key head.
    fn group(&self, layout: &LayerLayout) -> usize {
        self.heads / layout.kv_heads
    }

    /// Tiles of (row, head of the group) pairs for each key head.
    pub(crate) fn tiles(&self, layout: &LayerLayout) -> usize {
        (self.rows * self.group(layout)).div_ceil(ROWS)
    }

    /// Pages that the last row of a tile sees, at least one.
    pub(crate) fn pages(&self, layout: &LayerLayout, window: Option<usize>, tile: usize) -> usize {
        let group = self.group(layout);
        let to = self.visible((((tile + 1) * ROWS).min(self.rows * group) - 1) / group);
        let from = window.map_or(0, |window| to.saturating_sub(window));
        to.div_ceil(PAGE) - from / PAGE
    }

    /// Spans that the last row sees.
    pub(crate) fn spans(&self) -> usize {
        spans_of(self.longest())
    }
}

/// Some rows of one sequence and what they attend to. **Invariant:** their shapes fit together, which is found out once,
/// however many tiles and spans there are.
#[derive(Debug)]
pub(crate) struct Attention<'a> {
    isa: Isa,
    context: Context<'a>,
    queries: Queries<'a>,
}

impl<'a> Attention<'a> {
    /// O(pages).
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub(crate) fn new(isa: Isa, context: Context<'a>, queries: Queries<'a>) -> Self {
        check(&context, &queries);
        Self { isa, context, queries }
    }

    /// Key heads.
    pub(crate) fn kv_heads(&self) -> usize {
        self.context.layout.kv_heads
    }

    /// Tiles of each key head.
    pub(crate) fn tiles(&self) -> usize {
        self.queries.tiles(&self.context.layout)
    }

    /// Spans that the last row sees.
    pub(crate) fn spans(&self) -> usize {
        self.queries.spans()
    }

    /// Pages that the last row of a tile sees, at least one: what it costs.
    pub(crate) fn pages(&self, tile: usize) -> usize {
        self.queries.pages(&self.context.layout, self.context.window, tile)
    }

    /// Attends with tile `tile` of key head `kv_head`, over all spans, and writes the results.
    ///
    /// # Safety
    /// No other worker touches these rows and heads of the results meanwhile; queries and pages are not written. There are
    /// such a key head and tile.
    pub(crate) unsafe fn attend(&self, kv_head: usize, tile: usize) {
        let (context, queries) = (&self.context, &self.queries);
        self.isa.run(Attend { context, queries, kv_head, tile, spans: 0..queries.spans(), partials: None });
    }

    /// Attends with a tile over one span only; the result goes to `partials`, to be merged by [`Self::merge`].
    ///
    /// # Safety
    /// As [`Self::attend`], for the partials of this tile and span.
    pub(crate) unsafe fn attend_span(&self, kv_head: usize, tile: usize, span: usize, partials: &Partials<'_>) {
        let (context, queries, partials) = (&self.context, &self.queries, Some(partials));
        self.isa.run(Attend { context, queries, kv_head, tile, spans: span..span + 1, partials });
    }

    /// Merges the partial results of a tile's spans, in order, and writes the results.
    ///
    /// # Safety
    /// As [`Self::attend`]; every span of this tile has been attended to.
    pub(crate) unsafe fn merge(&self, kv_head: usize, tile: usize, partials: &Partials<'_>) {
        self.isa.run(Merge { context: &self.context, queries: &self.queries, kv_head, tile, partials });
    }
}

fn check(context: &Context<'_>, queries: &Queries<'_>) {
    let (layout, of_pages) = (&context.layout, context.of_pages);
    assert!(layout.head_dim <= HEAD_DIM_MAX && layout.head_dim.is_multiple_of(16));
    assert!(queries.heads.is_multiple_of(layout.kv_heads));
    assert!(context.sinks.is_none_or(|sinks| sinks.len() == queries.heads));
    assert!(context.pages.iter().all(|page| page.layout() == of_pages));
    let written = queries.start + if queries.branch.is_some() { 0 } else { queries.rows };
    assert!(written.div_ceil(PAGE) <= context.pages.len());
    if let Some(branch) = &queries.branch {
        assert!(branch.page.layout() == of_pages && branch.paths.len() == queries.rows && queries.rows <= PAGE);
        assert!(branch.paths.iter().all(|path| path.is_sorted() && path.last().is_some_and(|&slot| slot < PAGE)));
    }
    let last = queries.first_row + queries.rows;
    assert!(last * queries.stride <= queries.values.len() && queries.heads * layout.head_dim <= queries.stride);
    assert!(last * queries.out_stride <= queries.out.len() && queries.heads * layout.head_dim <= queries.out_stride);
}

struct Attend<'a> {
    context: &'a Context<'a>,
    queries: &'a Queries<'a>,
    kv_head: usize,
    tile: usize,
    spans: Range<usize>,
    partials: Option<&'a Partials<'a>>,
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let entries = self.queries.rows * self.queries.group(&self.context.layout);
        let first = self.tile * ROWS;
        macro_rules! rows {
            ($rows:literal) => {
                // SAFETY: the shapes were checked; the rest is the promise of `Attention`'s callers.
                unsafe { self.run_rows::<S, $rows>(s, first) }
            };
        }
        match entries.saturating_sub(first).min(ROWS) {
            0 => {}
            1 => rows!(1),
            2 | 3 => rows!(3),
            4 => rows!(4),
            _ => rows!(6),
        }
    }
}

impl Attend<'_> {
    #[inline(always)]
    unsafe fn run_rows<S: Simd, const R: usize>(&self, s: S, first: usize) {
        let mut memory = TileMemory::<R>::NEW;
        let mut work = TileWork::new(self.context, self.queries, self.kv_head, first, &mut memory);
        // SAFETY: the caller's.
        unsafe {
            work.load_queries(s);
            for span in self.spans.clone() {
                work.attend_span(s, span);
                match self.partials {
                    Some(partials) => work.store_partial(partials, self.tile, span),
                    None => work.merge_span(s, span),
                }
            }
            if self.partials.is_none() {
                work.write_results(s);
            }
        }
    }
}

struct Merge<'a> {
    context: &'a Context<'a>,
    queries: &'a Queries<'a>,
    kv_head: usize,
    tile: usize,
    partials: &'a Partials<'a>,
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let entries = self.queries.rows * self.queries.group(&self.context.layout);
        let first = self.tile * ROWS;
        for entry in first..(first + ROWS).min(entries) {
            let mut memory = TileMemory::<1>::NEW;
            let mut work = TileWork::new(self.context, self.queries, self.kv_head, entry, &mut memory);
            // SAFETY: the caller's promise.
            unsafe {
                merge_spans(s, &mut work, self.partials, self.tile, entry - first);
                work.write_results(s);
            }
        }
    }
}
