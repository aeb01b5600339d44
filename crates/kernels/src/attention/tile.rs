//! The inner loops of attention: a tile of up to six (row, head) pairs that share a key head.

use super::fetch::Fetch;
use super::halves::Halves;
use super::key_bias::BiasScores;
use super::layer::LayerLayout;
use super::layout::{KvFormat, PAGE, PageMemory, QUAD, VECTORS};
use super::partial::{Partials, SPAN_PAGES};
use super::quads::{
    CENTRES, Nibbles, Quads, QueryFactors, SCALES, Values, Weighed, WeightFactors, add_centres, at_position,
    at_positions, factor_at,
};
use super::rotation::turn;
use super::softmax::{LOWEST, MASKED, Softmax, merge_softmax, scale_values};
use super::tile_memory::{TileMemory, TileParts};
use super::{Branch, Context, Queries};
use crate::simd::{LANES, Simd, exp2_below};

/// Pairs in a tile: with four registers of scores (or outputs) each they fill the 32 AVX-512 registers.
pub(crate) const ROWS: usize = 6;

/// One (row, head) pair.
#[derive(Clone, Copy)]
struct Entry {
    /// In the buffers.
    row: usize,
    /// Among the rows of the call.
    within: usize,
    head: usize,
    /// Visible positions.
    from: usize,
    to: usize,
}

impl Entry {
    /// Whether all of a page is visible.
    fn sees_whole(&self, page: usize) -> bool {
        self.from <= page * PAGE && (page + 1) * PAGE <= self.to
    }

    /// Register `v` of a page's numbers where positions are visible, `other` elsewhere.
    #[inline(always)]
    fn visible<S: Simd>(&self, s: S, page: usize, v: usize, numbers: S::F, other: f32) -> S::F {
        const INDEX: [f32; PAGE] = {
            let mut index = [0.0; PAGE];
            let mut i = 0;
            while i < PAGE {
                index[i] = i as f32;
                i += 1;
            }
            index
        };
        let within = |position: usize| position.saturating_sub(page * PAGE).min(PAGE) as f32;
        // SAFETY: `INDEX` holds `PAGE` floats.
        let index = unsafe { s.load(INDEX.as_ptr().add(v * LANES)) };
        let numbers = s.select_lt(index, s.splat(within(self.to)), numbers, s.splat(other));
        s.select_lt(index, s.splat(within(self.from)), s.splat(other), numbers)
    }
}

/// What a page's products are made of, written anew for each page in place: where a page is small, clearing and copying this
/// would take as long as they do.
struct Scratch<const R: usize> {
    /// Of the positions, beside the largest of the page.
    weights: [[f32; PAGE]; R],
    /// What that counts for in the softmax.
    tops: [f32; LANES],
    /// What a group of values has at the positions that a pair sees.
    numbers: [[f32; PAGE]; R],
    factors: WeightFactors<R>,
}

impl<const R: usize> Scratch<R> {
    const NONE: Self =
        Self { weights: [[0.0; PAGE]; R], tops: [0.0; LANES], numbers: [[0.0; PAGE]; R], factors: WeightFactors::NONE };
}

/// The state of a tile.
pub(crate) struct TileWork<'a, const R: usize> {
    context: &'a Context<'a>,
    queries: &'a Queries<'a>,
    kv_head: usize,
    entries: [Entry; R],
    /// Queries scaled so that scores count in powers of two, `[dimension][pair]`.
    query: &'a mut [[f32; R]],
    /// The same turned and in 16 bits, where keys have eight.
    factors: QueryFactors<'a, R>,
    /// What the keys' bias adds to scores, where keys are without it.
    bias: Option<BiasScores<'a>>,
    /// Of the span under way; its totals are in the registers' lanes yet.
    span: [Softmax<'a>; R],
    totals: [[f32; LANES]; R],
    /// Of all spans merged so far.
    merged: [Softmax<'a>; R],
}

impl<'a, const R: usize> TileWork<'a, R> {
    /// Pairs `first..first + R` of a key head. Where there are fewer, the last one stands in for the rest (code exists
    /// for some `R` only), and computes the same again.
    #[inline(always)]
    pub(super) fn new(
        context: &'a Context<'a>,
        queries: &'a Queries<'a>,
        kv_head: usize,
        first: usize,
        memory: &'a mut TileMemory<R>,
    ) -> Self {
        let group = queries.group(&context.layout);
        let last = queries.rows * group - 1;
        let entries = std::array::from_fn(|i| {
            let pair = (first + i).min(last);
            let (row, head) = (pair / group, pair % group);
            let to = queries.visible(row);
            let from = context.window.map_or(0, |window| to.saturating_sub(window));
            Entry { row: queries.first_row + row, within: row, head: kv_head * group + head, from, to }
        });
        let TileParts { query, quads, scales, span, merged } = memory.parts(context.layout.head_dim);
        let mut merged = merged.map(Softmax::empty);
        for (softmax, entry) in merged.iter_mut().zip(&entries) {
            if let Some(sinks) = context.sinks {
                softmax.begin_with(sinks[entry.head]);
            }
        }
        Self {
            context,
            queries,
            kv_head,
            entries,
            query,
            factors: QueryFactors { quads, scales },
            bias: None,
            span: span.map(Softmax::empty),
            totals: [[0.0; LANES]; R],
            merged,
        }
    }

    /// # Safety
    /// The queries are not written meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn load_queries<S: Simd>(&mut self, s: S) {
        let dim = self.query.len();
        let scale = self.context.scale * std::f32::consts::LOG2_E;
        for (i, entry) in self.entries.iter().enumerate() {
            let start = entry.row * self.queries.stride + entry.head * dim;
            // SAFETY: the caller's.
            let query = unsafe { self.queries.values.part(start..start + dim) };
            for (d, q) in query.iter().enumerate() {
                self.query[d][i] = q * scale;
            }
        }
        if self.context.layout.format != KvFormat::F16 {
            self.factors.round(s, self.query);
            // Not in a closure, which would be compiled without the instruction set.
            if let Some(bias) = self.context.key_bias {
                self.bias = Some(BiasScores::new(s, bias, self.kv_head, self.query));
            }
        }
    }

    /// Runs the softmax of `span` from the beginning.
    ///
    /// # Safety
    /// The pages are as the layout says and are not written meanwhile at visible positions.
    #[inline(always)]
    pub(crate) unsafe fn attend_span<S: Simd>(&mut self, s: S, span: usize) {
        self.totals = [[0.0; LANES]; R];
        for softmax in &mut self.span {
            softmax.largest = LOWEST;
            softmax.values.fill(0.0);
        }
        let from = self.entries.iter().map(|entry| entry.from).min().unwrap_or(0);
        let to = self.entries.iter().map(|entry| entry.to).max().unwrap_or(0);
        let pages = (span * SPAN_PAGES).max(from / PAGE)..((span + 1) * SPAN_PAGES).min(to.div_ceil(PAGE));
        let (mut scores, mut scratch) = ([[s.splat(0.0); VECTORS]; R], Scratch::NONE);
        for page in pages {
            // SAFETY: the caller's; `check` compared the pages with the positions.
            unsafe { self.attend_page(s, page, &mut scores, &mut scratch) };
        }
        for (softmax, totals) in self.span.iter_mut().zip(&self.totals) {
            // SAFETY: a register of lanes.
            softmax.total = s.sum(unsafe { s.load(totals.as_ptr()) });
        }
    }

    /// Scores and scratch memory are written anew.
    #[inline(always)]
    unsafe fn attend_page<S: Simd>(
        &mut self,
        s: S,
        page: usize,
        scores: &mut [[S::F; VECTORS]; R],
        scratch: &mut Scratch<R>,
    ) {
        // SAFETY: the caller's. A page that only a branch reaches is not there; it is masked as a whole before the
        // branch's scores are put in, so any page serves in its place.
        unsafe {
            let branch = self.queries.branch.filter(|_| (page + 1) * PAGE > self.queries.start);
            let context = self.context.pages.get(page).copied().or(branch.map(|branch| branch.page));
            let Some(context) = context else { return };
            let next = self.context.pages.get(page + 1).copied().unwrap_or(context);
            self.page_scores(s, context, PAGE, scores);
            if let Some(branch) = branch {
                self.graft_scores(s, page, &branch, scores);
            }
            if let Some(bias) = &mut self.bias {
                bias.add(s, page, scores);
            }
            self.soften(s, page, scores, scratch);
            match self.context.layout.format {
                KvFormat::F16 => self.weigh_halves(s, page, [context, next], branch, scratch),
                KvFormat::Int8 => {
                    let values = (self.value_quads(context), branch.map(|branch| self.value_quads(branch.page)));
                    self.weigh_quads(s, page, values, next, branch, scratch);
                }
                KvFormat::Int4 => {
                    let values = (self.value_nibbles(context), branch.map(|branch| self.value_nibbles(branch.page)));
                    self.weigh_quads(s, page, values, next, branch, scratch);
                }
            }
        }
    }

    /// How many slots of a branch's page the tile's paths reach to.
    fn slots(&self, branch: &Branch<'_>) -> usize {
        let last = |entry: &Entry| branch.paths[entry.within].last().map_or(0, |&slot| slot + 1);
        self.entries.iter().map(last).max().unwrap_or(0)
    }

    /// Where the keys of this layer and head begin in a page, and where the values.
    fn sides(&self) -> (usize, usize) {
        let layout = &self.context.layout;
        (layout.keys(self.kv_head), layout.values(self.kv_head))
    }

    /// A side of a page in half precision.
    fn halves(&self, page: &PageMemory, side: usize) -> Halves {
        Halves { numbers: page.bytes()[side..].as_ptr().cast(), dim: self.context.layout.head_dim }
    }

    /// The keys of a page in eight bits.
    fn key_quads(&self, page: &PageMemory) -> Quads {
        let (layout, keys) = (self.context.layout, &page.bytes()[self.sides().0..]);
        let scales = keys[layout.key_scales(0)..].as_ptr().cast();
        Quads { quants: keys.as_ptr(), scales, dim: layout.head_dim }
    }

    /// The values of a page in eight bits.
    fn value_quads(&self, page: &PageMemory) -> Quads {
        let (layout, values) = (self.context.layout, &page.bytes()[self.sides().1..]);
        let scales = values[layout.value_scales(0)..].as_ptr().cast();
        Quads { quants: values.as_ptr(), scales, dim: layout.head_dim }
    }

    /// The values of a page in four bits.
    fn value_nibbles(&self, page: &PageMemory) -> Nibbles {
        let (layout, values) = (self.context.layout, &page.bytes()[self.sides().1..]);
        let scales = values[layout.value_scales(0)..].as_ptr().cast();
        let centres = values[layout.value_centres(0)..].as_ptr().cast();
        Nibbles { quants: values.as_ptr(), scales, centres, dim: layout.head_dim }
    }

    /// Scores of a page's first slots, at least so many; those of others stay.
    #[inline(always)]
    unsafe fn page_scores<S: Simd>(&self, s: S, page: &PageMemory, slots: usize, scores: &mut [[S::F; VECTORS]; R]) {
        let (layout, (keys, values)) = (self.context.layout, self.sides());
        let fetched = page.bytes()[values..].as_ptr();
        // SAFETY: the caller's; these are keys by the layout.
        unsafe {
            match layout.format {
                KvFormat::F16 => {
                    let fetch = Fetch::new(fetched, values - keys, layout.head_dim);
                    self.halves(page, keys).scores(s, self.query, fetch, slots, scores);
                }
                KvFormat::Int8 | KvFormat::Int4 => {
                    let fetch = Fetch::new(fetched, values - keys, layout.head_dim / QUAD);
                    self.factors.scores(s, self.key_quads(page), fetch, slots, scores);
                }
            }
        }
    }

    /// Adds the values of a page in half precision, weighted: the context's, then the branch's. `next` is the page that
    /// comes after it.
    #[inline(always)]
    unsafe fn weigh_halves<S: Simd>(
        &mut self,
        s: S,
        page: usize,
        [context, next]: [&PageMemory; 2],
        branch: Option<Branch<'_>>,
        Scratch { weights, tops, .. }: &mut Scratch<R>,
    ) {
        let (keys, values) = self.sides();
        let fetch = Fetch::new(next.bytes()[keys..].as_ptr(), values - keys, PAGE);
        let context = self.halves(context, values);
        // SAFETY: the caller's; these are values by the layout. A row of weights is `VECTORS` registers.
        unsafe {
            for (weights, top) in weights.iter_mut().zip(*tops) {
                for v in 0..VECTORS {
                    let at = weights.as_mut_ptr().add(v * LANES);
                    s.store(at, s.mul(s.load(at), s.splat(top)));
                }
            }
            let Some(branch) = branch else {
                context.weigh(s, weights, fetch, PAGE, &mut self.span);
                return;
            };
            // Only what can have a weight.
            let grafted = self.take(page, &branch, weights, |position| position);
            context.weigh(s, weights, fetch, self.positions_before(page), &mut self.span);
            let (own, slots) = (self.halves(branch.page, values), self.slots(&branch));
            own.weigh(s, &grafted, fetch, slots, &mut self.span);
        }
    }

    /// The same of values that are integers: those of the page, and those of the branch.
    #[inline(always)]
    unsafe fn weigh_quads<S: Simd, V: Values>(
        &mut self,
        s: S,
        page: usize,
        (context, own): (V, Option<V>),
        next: &PageMemory,
        branch: Option<Branch<'_>>,
        Scratch { weights, tops, numbers, factors }: &mut Scratch<R>,
    ) {
        let (keys, values) = self.sides();
        let fetch = Fetch::new(next.bytes()[keys..].as_ptr(), values - keys, PAGE / QUAD);
        let branch = branch.zip(own);
        let is_seen_whole = branch.is_none() && self.entries.iter().all(|entry| entry.sees_whole(page));
        let [scales, centres] = context.of_groups();
        for group in 0..self.context.layout.groups() {
            // SAFETY: the caller's; these are values by the layout.
            unsafe {
                if is_seen_whole {
                    factors.round(s, (weights, tops), scales, group);
                } else {
                    let own = branch.map(|(branch, own)| (branch, own.of_groups()[SCALES]));
                    self.numbers(s, (page, group), scales, own, numbers);
                    factors.round_each(s, (weights, tops), numbers);
                }
                if let Some(centre) = V::CENTRE {
                    factors.count_from(centre);
                    let own = branch.map(|(branch, own)| (branch, own.of_groups()[CENTRES]));
                    self.numbers(s, (page, group), centres, own, numbers);
                    add_centres(s, (group, context.dim()), (weights, tops), numbers, &mut self.span);
                }
                let Some((branch, own)) = branch else {
                    let all = Weighed { values: context, factors: &factors.factors, positions: PAGE };
                    factors.add(s, group, &[all], fetch, &mut self.span);
                    continue;
                };
                let grafted = self.take(page, &branch, &mut factors.factors, factor_at);
                let (before, slots) = (self.positions_before(page), self.slots(&branch));
                let before = Weighed { values: context, factors: &factors.factors, positions: before };
                let own = Weighed { values: own, factors: &grafted, positions: slots };
                factors.add(s, group, &[before, own], fetch, &mut self.span);
            }
        }
    }

    /// What a group has at the positions of a page that each pair sees, zero at others; of a branch where its rows would be.
    #[inline(always)]
    unsafe fn numbers<S: Simd>(
        &self,
        s: S,
        (page, group): (usize, usize),
        of_groups: *const u16,
        branch: Option<(Branch<'_>, *const u16)>,
        numbers: &mut [[f32; PAGE]; R],
    ) {
        for v in 0..VECTORS {
            // SAFETY: the caller's; a row has `VECTORS` registers.
            unsafe {
                let all = at_positions(s, of_groups, group, v);
                for (numbers, entry) in numbers.iter_mut().zip(&self.entries) {
                    s.store(numbers.as_mut_ptr().add(v * LANES), entry.visible(s, page, v, all, 0.0));
                }
            }
        }
        let Some((branch, own)) = branch else { return };
        for (r, numbers) in numbers.iter_mut().enumerate() {
            for (slot, at) in self.grafts(r, page, &branch) {
                // SAFETY: the caller's.
                numbers[at] = unsafe { at_position(own, group, slot) };
            }
        }
    }

    /// Positions of a page that the context has.
    fn positions_before(&self, page: usize) -> usize {
        self.queries.start.saturating_sub(page * PAGE).min(PAGE)
    }

    /// Puts the scores of each pair's path where its positions would be.
    #[inline(always)]
    unsafe fn graft_scores<S: Simd>(&self, s: S, page: usize, branch: &Branch<'_>, scores: &mut [[S::F; VECTORS]; R]) {
        // SAFETY: the caller's; rows of 64 floats are four registers.
        unsafe {
            let mut slots = [[s.splat(0.0); VECTORS]; R];
            self.page_scores(s, branch.page, self.slots(branch), &mut slots);
            for (r, (scores, slots)) in scores.iter_mut().zip(slots).enumerate() {
                let (mut from, mut to) = ([0.0_f32; PAGE], [0.0_f32; PAGE]);
                for (v, (score, slot)) in scores.iter().zip(slots).enumerate() {
                    s.store(from.as_mut_ptr().add(v * LANES), slot);
                    s.store(to.as_mut_ptr().add(v * LANES), *score);
                }
                for (slot, at) in self.grafts(r, page, branch) {
                    to[at] = from[slot];
                }
                for (v, score) in scores.iter_mut().enumerate() {
                    *score = s.load(to.as_ptr().add(v * LANES));
                }
            }
        }
    }

    /// Moves the weights of each pair's path from its positions to its slots; `place` is where a position's weight stands.
    fn take<T: Copy + Default>(
        &self,
        page: usize,
        branch: &Branch<'_>,
        weights: &mut [[T; PAGE]; R],
        place: impl Fn(usize) -> usize,
    ) -> [[T; PAGE]; R] {
        let mut grafted = [[T::default(); PAGE]; R];
        for (r, (weights, grafted)) in weights.iter_mut().zip(&mut grafted).enumerate() {
            for (slot, at) in self.grafts(r, page, branch) {
                grafted[place(slot)] = std::mem::take(&mut weights[place(at)]);
            }
        }
        grafted
    }

    /// The slots of pair `r`'s path and their places in `page`.
    fn grafts<'b>(
        &self,
        r: usize,
        page: usize,
        branch: &Branch<'b>,
    ) -> impl Iterator<Item = (usize, usize)> + use<'b, R> {
        let (start, first) = (self.queries.start, page * PAGE);
        let path = branch.paths[self.entries[r].within].iter();
        path.enumerate()
            .map(move |(depth, &slot)| (slot, start + depth))
            .filter(move |&(_, position)| (first..first + PAGE).contains(&position))
            .map(move |(slot, position)| (slot, position - first))
    }

    /// Masks the scores, and leaves the weights of the page and what they count for; the largest score and the totals
    /// follow, and so does what was added up before.
    #[inline(always)]
    unsafe fn soften<S: Simd>(
        &mut self,
        s: S,
        page: usize,
        scores: &mut [[S::F; VECTORS]; R],
        Scratch { weights, tops, .. }: &mut Scratch<R>,
    ) {
        let (mut before, mut of_page) = ([LOWEST; LANES], [LOWEST; LANES]);
        for (r, (scores, entry)) in scores.iter_mut().zip(&self.entries).enumerate() {
            if !entry.sees_whole(page) {
                for (v, score) in scores.iter_mut().enumerate() {
                    *score = entry.visible(s, page, v, *score, MASKED);
                }
            }
            let mut highest = scores[0];
            for score in &scores[1..] {
                highest = s.max(highest, *score);
            }
            (before[r], of_page[r]) = (self.span[r].largest, s.max_lane(highest).max(LOWEST));
        }
        let mut keeps = [0.0; LANES];
        // SAFETY: registers of lanes, of which each pair has one.
        unsafe {
            let (old, own) = (s.load(before.as_ptr()), s.load(of_page.as_ptr()));
            let largest = s.max(old, own);
            s.store(before.as_mut_ptr(), largest);
            s.store(keeps.as_mut_ptr(), exp2_below(s, s.sub(old, largest)));
            s.store(tops.as_mut_ptr(), exp2_below(s, s.sub(own, largest)));
        }
        for r in 0..R {
            let (softmax, totals) = (&mut self.span[r], self.totals[r].as_mut_ptr());
            let (keep, top) = (s.splat(keeps[r]), s.splat(tops[r]));
            let of_page = s.splat(of_page[r]);
            let mut total = s.splat(0.0);
            for (v, score) in scores[r].iter().enumerate() {
                let weight = exp2_below(s, s.sub(*score, of_page));
                total = s.add(total, weight);
                // SAFETY: a row of weights holds `PAGE` floats.
                unsafe { s.store(weights[r].as_mut_ptr().add(v * LANES), weight) };
            }
            if before[r] > softmax.largest {
                scale_values(s, softmax.values, keeps[r]);
                softmax.largest = before[r];
            }
            // SAFETY: a register of lanes.
            unsafe { s.store(totals, s.fma(s.load(totals), keep, s.mul(total, top))) };
        }
    }

    /// Merges the span under way into the result. A span that a pair does not see changes nothing for it.
    #[inline(always)]
    pub(crate) fn merge_span<S: Simd>(&mut self, s: S, span: usize) {
        for r in 0..R {
            if self.sees(r, span) {
                let Softmax { largest, total, values } = &self.span[r];
                merge_softmax(s, &mut self.merged[r], (*largest, *total, values));
            }
        }
    }

    /// Whether pair `r` sees a position of `span`.
    pub(crate) fn sees(&self, r: usize, span: usize) -> bool {
        let (first, last) = (span * SPAN_PAGES * PAGE, (span + 1) * SPAN_PAGES * PAGE);
        self.entries[r].to > first && self.entries[r].from < last
    }

    /// Stores the span under way as partial results.
    ///
    /// # Safety
    /// No other worker touches these partials meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn store_partial(&self, partials: &Partials<'_>, tile: usize, span: usize) {
        for (r, softmax) in self.span.iter().enumerate() {
            // SAFETY: the caller's.
            let slot = unsafe { partials.slot_mut(self.kv_head, tile, span, r) };
            slot[0] = softmax.largest;
            slot[1] = softmax.total;
            slot[2..].copy_from_slice(softmax.values);
        }
    }

    /// Spans that any pair of the tile can see, and the head it belongs to.
    pub(crate) fn place(&self) -> (std::ops::Range<usize>, usize) {
        (0..self.queries.spans(), self.kv_head)
    }

    /// Where merged results go.
    pub(crate) fn merged_mut(&mut self, r: usize) -> &mut Softmax<'a> {
        &mut self.merged[r]
    }

    /// Writes the merged results out.
    ///
    /// # Safety
    /// No other worker touches these rows and heads of the results meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write_results<S: Simd>(&mut self, s: S) {
        let LayerLayout { head_dim: dim, format, .. } = self.context.layout;
        for (entry, softmax) in self.entries.iter().zip(&mut self.merged) {
            if format != KvFormat::F16 {
                turn(s, softmax.values);
            }
            let start = entry.row * self.queries.out_stride + entry.head * dim;
            let inverse = s.splat(1.0 / softmax.total);
            // SAFETY: the caller's; a head has a multiple of 16 dimensions.
            unsafe {
                let out = self.queries.out.part_mut(start..start + dim).as_mut_ptr();
                for d in (0..dim).step_by(LANES) {
                    s.store(out.add(d), s.mul(s.load(softmax.values.as_ptr().add(d)), inverse));
                }
            }
        }
    }
}
