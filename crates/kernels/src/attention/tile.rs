//! The inner loops of attention: a tile of up to six (row, head) pairs that share a key head.

use super::key_bias::BiasScores;
use super::layout::{GROUP, KvFormat, PAGE, PageMemory};
use super::partial::{Partials, SPAN_PAGES};
use super::softmax::{LOWEST, MASKED, Softmax, merge_softmax, scalar_exp, scale_values};
use super::source::{Bytes, Fetch, Halves, Source};
use super::{Branch, Context, HEAD_DIM_MAX, Queries};
use crate::simd::{LANES, Simd, exp};

/// Pairs in a tile: with four registers of scores (or outputs) each they fill the 32 AVX-512 registers.
pub(crate) const ROWS: usize = 6;

/// Registers of scores in a page.
const VECTORS: usize = PAGE / LANES;

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

/// The state of a tile.
pub(crate) struct TileWork<'a, const R: usize> {
    context: &'a Context<'a>,
    queries: &'a Queries<'a>,
    kv_head: usize,
    entries: [Entry; R],
    /// Scaled queries, `[dimension][pair]`.
    query: [[f32; R]; HEAD_DIM_MAX],
    /// What the keys' bias adds to scores, where keys are without it.
    bias: Option<BiasScores<'a, R>>,
    /// Of the span under way.
    span: [Softmax; R],
    /// Of all spans merged so far.
    merged: [Softmax; R],
}

impl<'a, const R: usize> TileWork<'a, R> {
    /// Pairs `first..first + R` of a key head. Where there are fewer, the last one stands in for the rest (code exists
    /// for some `R` only), and computes the same again.
    pub(crate) fn new(context: &'a Context<'a>, queries: &'a Queries<'a>, kv_head: usize, first: usize) -> Self {
        let group = queries.group(context.layout);
        let last = queries.rows * group - 1;
        let entries = std::array::from_fn(|i| {
            let pair = (first + i).min(last);
            let (row, head) = (pair / group, pair % group);
            let to = queries.visible(row);
            let from = context.window.map_or(0, |window| to.saturating_sub(window));
            Entry { row: queries.first_row + row, within: row, head: kv_head * group + head, from, to }
        });
        Self {
            context,
            queries,
            kv_head,
            entries,
            query: [[0.0; R]; HEAD_DIM_MAX],
            bias: None,
            span: [Softmax::EMPTY; R],
            merged: [Softmax::EMPTY; R],
        }
    }

    /// # Safety
    /// The queries are not written meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn load_queries<S: Simd>(&mut self, _s: S) {
        let dim = self.context.layout.head_dim;
        for (i, entry) in self.entries.iter().enumerate() {
            let start = entry.row * self.queries.stride + entry.head * dim;
            // SAFETY: the caller's.
            let query = unsafe { self.queries.values.part(start..start + dim) };
            for (d, q) in query.iter().enumerate() {
                self.query[d][i] = q * self.context.scale;
            }
        }
        let apart = self.context.key_bias.filter(|_| self.context.layout.format == KvFormat::Int8);
        self.bias = apart.map(|bias| BiasScores::new(bias, self.kv_head, &self.query));
    }

    /// Runs the softmax of `span` from the beginning.
    ///
    /// # Safety
    /// The pages are as the layout says and are not written meanwhile at visible positions.
    #[inline(always)]
    pub(crate) unsafe fn attend_span<S: Simd>(&mut self, s: S, span: usize) {
        for softmax in &mut self.span {
            softmax.largest = LOWEST;
            softmax.total = 0.0;
            softmax.values[..self.context.layout.head_dim].fill(0.0);
        }
        let from = self.entries.iter().map(|entry| entry.from).min().unwrap_or(0);
        let to = self.entries.iter().map(|entry| entry.to).max().unwrap_or(0);
        let pages = (span * SPAN_PAGES).max(from / PAGE)..((span + 1) * SPAN_PAGES).min(to.div_ceil(PAGE));
        for page in pages {
            // SAFETY: the caller's; `check` compared the pages with the positions.
            unsafe { self.attend_page(s, page) };
        }
    }

    #[inline(always)]
    unsafe fn attend_page<S: Simd>(&mut self, s: S, page: usize) {
        let mut weights = [[0.0_f32; PAGE]; R];
        // SAFETY: the caller's. A page that only a branch reaches is not there; it is masked as a whole before the
        // branch's scores are put in, so any page serves in its place.
        unsafe {
            let branch = self.queries.branch.filter(|_| (page + 1) * PAGE > self.queries.start);
            let context = self.context.pages.get(page).copied().or(branch.map(|branch| branch.page));
            let Some(context) = context else { return };
            let next = self.context.pages.get(page + 1).copied().unwrap_or(context);
            let mut scores = self.page_scores(s, context, PAGE);
            if let Some(branch) = branch {
                self.graft_scores(s, page, &branch, &mut scores);
            }
            if let Some(bias) = &self.bias {
                bias.add(s, page, &mut scores);
            }
            self.soften(s, page, scores, &mut weights);
            if let Some(branch) = branch {
                // Only what can have a weight: the context's positions, then the branch's slots.
                let grafted = self.take_weights(page, &branch, &mut weights);
                let positions = self.queries.start.saturating_sub(page * PAGE);
                self.weigh_page(s, context, next, &weights, positions);
                self.weigh_page(s, branch.page, next, &grafted, self.slots(&branch));
            } else {
                self.weigh_page(s, context, next, &weights, PAGE);
            }
        }
    }

    /// How many slots of a branch's page the tile's paths reach to.
    fn slots(&self, branch: &Branch<'_>) -> usize {
        let last = |entry: &Entry| branch.paths[entry.within].last().map_or(0, |&slot| slot + 1);
        self.entries.iter().map(last).max().unwrap_or(0)
    }

    /// Scores of a page's first slots, at least so many.
    #[inline(always)]
    unsafe fn page_scores<S: Simd>(&self, s: S, page: &PageMemory, slots: usize) -> [[S::F; VECTORS]; R] {
        let layout = self.context.layout;
        let memory = page.bytes().as_ptr();
        // SAFETY: the caller's; offsets are the layout's.
        unsafe {
            let keys = memory.add(layout.keys(self.context.layer, self.kv_head));
            let values = memory.add(layout.values(self.context.layer, self.kv_head));
            let fetch = Fetch::new(values, values.offset_from_unsigned(keys), layout.head_dim);
            match layout.format {
                KvFormat::F16 => self.scores(s, Halves(keys.cast()), fetch, slots),
                KvFormat::Int8 => {
                    let keys = Bytes { quants: keys.cast(), scales: keys.add(layout.scales(0)).cast() };
                    self.scores(s, keys, fetch, slots)
                }
            }
        }
    }

    /// Adds the values of a page's first positions, weighted; `next` is the page that comes after it.
    #[inline(always)]
    unsafe fn weigh_page<S: Simd>(
        &mut self,
        s: S,
        page: &PageMemory,
        next: &PageMemory,
        weights: &[[f32; PAGE]; R],
        positions: usize,
    ) {
        let layout = self.context.layout;
        let keys = layout.keys(self.context.layer, self.kv_head);
        let values = layout.values(self.context.layer, self.kv_head);
        let fetch = Fetch::new(next.bytes().as_ptr().wrapping_add(keys), values - keys, PAGE);
        // SAFETY: the caller's; offsets are the layout's.
        unsafe {
            let values = page.bytes().as_ptr().add(values);
            match layout.format {
                KvFormat::F16 => self.weigh(s, weights, Halves(values.cast()), fetch, positions),
                KvFormat::Int8 => {
                    let values = Bytes { quants: values.cast(), scales: values.add(layout.scales(0)).cast() };
                    self.weigh(s, weights, values, fetch, positions);
                }
            }
        }
    }

    /// Puts the scores of each pair's path where its positions would be.
    #[inline(always)]
    unsafe fn graft_scores<S: Simd>(&self, s: S, page: usize, branch: &Branch<'_>, scores: &mut [[S::F; VECTORS]; R]) {
        // SAFETY: the caller's; rows of 64 floats are four registers.
        unsafe {
            let slots = self.page_scores(s, branch.page, self.slots(branch));
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

    /// Moves the weights of each pair's path from its positions to its slots.
    fn take_weights(&self, page: usize, branch: &Branch<'_>, weights: &mut [[f32; PAGE]; R]) -> [[f32; PAGE]; R] {
        let mut grafted = [[0.0; PAGE]; R];
        for r in 0..R {
            for (slot, at) in self.grafts(r, page, branch) {
                grafted[r][slot] = std::mem::take(&mut weights[r][at]);
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

    /// Products of the queries with the keys of the page's first slots, at least so many; 0 for others.
    #[inline(always)]
    unsafe fn scores<S: Simd, K: Source>(&self, s: S, keys: K, fetch: Fetch, slots: usize) -> [[S::F; VECTORS]; R] {
        let mut scores = [[s.splat(0.0); VECTORS]; R];
        // SAFETY: the caller's.
        unsafe {
            if slots > 2 * LANES {
                self.score_vectors::<S, K, VECTORS>(s, keys, fetch, 0, &mut scores);
            } else {
                for first in 0..slots.div_ceil(LANES) {
                    self.score_vectors::<S, K, 1>(s, keys, fetch, first, &mut scores);
                }
            }
        }
        scores
    }

    /// The scores of `V` registers of slots, from register `first` on.
    #[inline(always)]
    unsafe fn score_vectors<S: Simd, K: Source, const V: usize>(
        &self,
        s: S,
        keys_at: K,
        fetch: Fetch,
        first: usize,
        scores: &mut [[S::F; VECTORS]; R],
    ) {
        let dim = self.context.layout.head_dim;
        let mut totals = [[s.splat(0.0); V]; R];
        for (group, from) in (0..dim).step_by(K::GROUP).enumerate() {
            let mut sums = [[s.splat(0.0); V]; R];
            for d in from..dim.min(from + K::GROUP) {
                if first == 0 {
                    fetch.step(s, d);
                }
                let mut keys = [s.splat(0.0); V];
                for (v, key) in keys.iter_mut().enumerate() {
                    // SAFETY: within the keys of the page.
                    *key = unsafe { keys_at.load(s, ((first + v) * dim + d) * LANES) };
                }
                for (row, q) in sums.iter_mut().zip(self.query[d]) {
                    let q = s.splat(q);
                    for (sum, key) in row.iter_mut().zip(keys) {
                        *sum = s.fma(q, key, *sum);
                    }
                }
            }
            for v in 0..V {
                // SAFETY: within the scales of the page.
                let scales = unsafe { keys_at.scales(s, group, first + v) };
                for (total, sum) in totals.iter_mut().zip(&sums) {
                    total[v] = match scales {
                        Some(scales) => s.fma(scales, sum[v], total[v]),
                        None => sum[v],
                    };
                }
            }
        }
        for (scores, totals) in scores.iter_mut().zip(totals) {
            scores[first..first + V].copy_from_slice(&totals);
        }
    }

    /// Masks the scores, updates the largest and the totals, and leaves the weights of the page.
    #[inline(always)]
    unsafe fn soften<S: Simd>(
        &mut self,
        s: S,
        page: usize,
        mut scores: [[S::F; VECTORS]; R],
        weights: &mut [[f32; PAGE]; R],
    ) {
        const INDEX: [f32; PAGE] = {
            let mut index = [0.0; PAGE];
            let mut i = 0;
            while i < PAGE {
                index[i] = i as f32;
                i += 1;
            }
            index
        };
        let first = page * PAGE;
        for r in 0..R {
            let entry = self.entries[r];
            if entry.to < first + PAGE || entry.from > first {
                let to = s.splat(entry.to.saturating_sub(first).min(PAGE) as f32);
                let from = s.splat(entry.from.saturating_sub(first).min(PAGE) as f32);
                for (v, score) in scores[r].iter_mut().enumerate() {
                    // SAFETY: `INDEX` holds `PAGE` floats.
                    let index = unsafe { s.load(INDEX.as_ptr().add(v * LANES)) };
                    *score = s.select_lt(index, to, *score, s.splat(MASKED));
                    *score = s.select_lt(index, from, s.splat(MASKED), *score);
                }
            }
            let softmax = &mut self.span[r];
            let mut highest = scores[r][0];
            for score in &scores[r][1..] {
                highest = s.max(highest, *score);
            }
            let largest = softmax.largest.max(s.max_lane(highest));
            let mut total = s.splat(0.0);
            for (v, score) in scores[r].iter().enumerate() {
                let weight = exp(s, s.sub(*score, s.splat(largest)));
                total = s.add(total, weight);
                // SAFETY: a row of weights holds `PAGE` floats.
                unsafe { s.store(weights[r].as_mut_ptr().add(v * LANES), weight) };
            }
            if largest > softmax.largest {
                let keep = scalar_exp(s, softmax.largest - largest);
                softmax.total *= keep;
                scale_values(s, &mut softmax.values, self.context.layout.head_dim, keep);
                softmax.largest = largest;
            }
            softmax.total += s.sum(total);
        }
    }

    /// Adds the values of the page's first positions, weighted.
    #[inline(always)]
    unsafe fn weigh<S: Simd, V: Source>(
        &mut self,
        s: S,
        weights: &[[f32; PAGE]; R],
        values: V,
        fetch: Fetch,
        positions: usize,
    ) {
        let dim = self.context.layout.head_dim;
        let mut d = 0;
        // SAFETY: `d` stays below the head's dimensions, a multiple of 16.
        unsafe {
            while d + 4 * LANES <= dim {
                if V::GROUP < 4 * LANES {
                    let one = scaled(s, weights, values, d / GROUP);
                    let other = scaled(s, weights, values, d / GROUP + 1);
                    self.weigh_vectors::<S, V, 4, 2>(s, [&one, &other], d, values, fetch, positions);
                } else {
                    self.weigh_vectors::<S, V, 4, 1>(s, [weights], d, values, fetch, positions);
                }
                d += 4 * LANES;
            }
            while d < dim {
                let weights = scaled(s, weights, values, d / V::GROUP);
                self.weigh_vectors::<S, V, 1, 1>(s, [&weights], d, values, fetch, positions);
                d += LANES;
            }
        }
    }

    /// `N` registers of dimensions, with weights for each of `G` groups of them.
    #[inline(always)]
    unsafe fn weigh_vectors<S: Simd, V: Source, const N: usize, const G: usize>(
        &mut self,
        s: S,
        weights: [&[[f32; PAGE]; R]; G],
        d: usize,
        values_at: V,
        fetch: Fetch,
        positions: usize,
    ) {
        let dim = self.context.layout.head_dim;
        let mut sums = [[s.splat(0.0); N]; R];
        for (row, softmax) in sums.iter_mut().zip(&self.span) {
            for (v, sum) in row.iter_mut().enumerate() {
                // SAFETY: the caller's bound on `d`.
                *sum = unsafe { s.load(softmax.values.as_ptr().add(d + v * LANES)) };
            }
        }
        for position in 0..positions.min(PAGE) {
            if d == 0 {
                fetch.step(s, position);
            }
            let mut values = [s.splat(0.0); N];
            for (v, value) in values.iter_mut().enumerate() {
                // SAFETY: within the values of the page.
                *value = unsafe { values_at.load(s, position * dim + d + v * LANES) };
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let mut splats = [s.splat(0.0); G];
                for (splat, weights) in splats.iter_mut().zip(weights) {
                    *splat = s.splat(weights[r][position]);
                }
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = s.fma(splats[v * G / N], values[v], *sum);
                }
            }
        }
        for (row, softmax) in sums.iter().zip(&mut self.span) {
            for (v, sum) in row.iter().enumerate() {
                // SAFETY: as above.
                unsafe { s.store(softmax.values.as_mut_ptr().add(d + v * LANES), *sum) };
            }
        }
    }

    /// Merges the span under way into the result. A span that a pair does not see changes nothing for it.
    #[inline(always)]
    pub(crate) fn merge_span<S: Simd>(&mut self, s: S, span: usize) {
        for r in 0..R {
            if self.sees(r, span) {
                let part = &self.span[r];
                merge_softmax(s, &mut self.merged[r], part, self.context.layout.head_dim);
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
        let dim = self.context.layout.head_dim;
        for (r, softmax) in self.span.iter().enumerate() {
            // SAFETY: the caller's.
            let slot = unsafe { partials.slot_mut(self.kv_head, tile, span, r) };
            slot[0] = softmax.largest;
            slot[1] = softmax.total;
            slot[2..2 + dim].copy_from_slice(&softmax.values[..dim]);
        }
    }

    /// Spans that any pair of the tile can see, and the head it belongs to.
    pub(crate) fn place(&self) -> (std::ops::Range<usize>, usize, usize) {
        (0..self.queries.spans(), self.kv_head, self.context.layout.head_dim)
    }

    /// Where merged results go.
    pub(crate) fn merged_mut(&mut self, r: usize) -> &mut Softmax {
        &mut self.merged[r]
    }

    /// Writes the merged results out.
    ///
    /// # Safety
    /// No other worker touches these rows and heads of the results meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write_results<S: Simd>(&self, s: S) {
        let dim = self.context.layout.head_dim;
        for (entry, softmax) in self.entries.iter().zip(&self.merged) {
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

/// Weights times the scales of a group at their positions.
#[inline(always)]
unsafe fn scaled<S: Simd, V: Source, const R: usize>(
    s: S,
    weights: &[[f32; PAGE]; R],
    values: V,
    group: usize,
) -> [[f32; PAGE]; R] {
    let mut scaled = *weights;
    for v in 0..VECTORS {
        // SAFETY: within the scales of the page, as the caller promises; a row has `VECTORS` registers.
        unsafe {
            let Some(scales) = values.scales(s, group, v) else { return scaled };
            for row in &mut scaled {
                let at = row.as_mut_ptr().add(v * LANES);
                s.store(at, s.mul(s.load(at), scales));
            }
        }
    }
    scaled
}
