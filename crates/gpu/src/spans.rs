//! Spans of nodes: what lies between them stays on the GPU.
//!
//! A span is submitted in pieces, each of which takes as long as a display lets it (`display.rs`) by what pieces took before, so
//! that what the same GPU draws comes between them. A node is the least.

use crate::attending::Sight;
use crate::back;
use crate::divided::Divided;
use crate::error::GpuError;
use crate::given::Given;
use crate::kept::Kept;
use crate::loaded::Loaded;
use crate::nodes::Launcher;
use crate::pages::Listed;
use crate::prepared::Part;
use crate::recording::Recording;
use crate::room::SPAN_ROWS;
use crate::staging::{Piece, Staging};
use duet_model::Model;
use duet_model::forward::{NotRun, SpanRows};
use duet_model::kv::PAGE_TOKENS;
use duet_types::{Node, Tokens};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What spans need beside the nodes' weights.
#[derive(Debug)]
pub(crate) struct Spans {
    pub(crate) kept: Kept,
    /// Cosines and sines of each row.
    pub(crate) angles: wgpu::Buffer,
    /// Of each row: position, paged positions, and where pages and path are in `places`.
    pub(crate) rows: wgpu::Buffer,
    pub(crate) places: wgpu::Buffer,
    /// Of each row: where its key and value go, and its position.
    pub(crate) slots: wgpu::Buffer,
    /// Keys and values of one layer after another, as they are to be read back.
    pub(crate) results: wgpu::Buffer,
    /// What spans of attention come to that have workgroups of their own.
    pub(crate) apart: wgpu::Buffer,
    given: Given,
    staging: Staging,
    /// Multiply-accumulates a second, in pieces that were timed: of few rows, which launches hold up, and of many.
    paces: [Pace; 2],
}

/// Rows that are many.
const MANY_ROWS: usize = 32;

/// How fast pieces were.
#[derive(Debug)]
struct Pace(AtomicU64);

impl Pace {
    fn new() -> Self {
        // A slow adapter, so that the first pieces are short.
        Self(AtomicU64::new(1_000_000_000))
    }

    /// What is done in so long a time.
    fn macs(&self, time: Duration) -> u64 {
        (self.0.load(Ordering::Relaxed) as f64 * time.as_secs_f64()) as u64
    }

    fn took(&self, macs: u64, time: Duration) {
        if macs > 0 {
            let found = macs as f64 / time.as_secs_f64().max(1e-6);
            let before = self.0.load(Ordering::Relaxed) as f64;
            self.0.store((0.75 * before + 0.25 * found) as u64, Ordering::Relaxed);
        }
    }
}

/// A pass's rows on their way, launch by launch.
pub(crate) struct Way<'a, 'r> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) model: &'a Model,
    pub(crate) spans: &'a mut Spans,
    launcher: Launcher<'a>,
    pub(crate) rows: &'a mut SpanRows<'r>,
    pub(crate) count: usize,
    /// Where each sequence's pages are.
    pub(crate) listed: Vec<Listed>,
    pub(crate) recording: Recording<'a>,
    /// Multiply-accumulates that are recorded and not submitted.
    recorded: u64,
    /// Layers whose keys and values were computed.
    pub(crate) computed: Vec<usize>,
}

impl Loaded {
    /// Runs nodes on all rows of a pass. Whether they fit.
    pub(crate) fn span(
        &self,
        spans: &mut Spans,
        model: &Model,
        nodes: &[Node],
        rows: &mut SpanRows<'_>,
    ) -> Result<Fits, GpuError> {
        let count = rows.residual.len() / self.widths.hidden;
        let is_here = |node: &Node| match *node {
            Node::Qkv { layer } | Node::Attention { layer } | Node::Ffn { layer } => self.layer(layer).is_ok(),
            _ => true,
        };
        if count == 0 || count > SPAN_ROWS || !nodes.iter().all(is_here) {
            return Ok(Fits::No);
        }
        let began = Instant::now();
        let Some(listed) = spans.kept.prepare(&self.gpu, rows)? else { return Ok(Fits::No) };
        spans.given.clear();
        if spans.describe(rows, &listed) == Fits::No {
            return Ok(Fits::No);
        }
        let mut way = Way {
            loaded: self,
            model,
            spans,
            launcher: self.launcher(),
            rows,
            count,
            listed,
            recording: Recording::timed(&self.gpu),
            recorded: 0,
            computed: Vec::new(),
        };
        way.begin(nodes[0]);
        self.gpu.note("describing", began);
        let began = Instant::now();
        for &node in nodes {
            way.node(node)?;
        }
        self.gpu.note("recording", began);
        way.end(nodes[nodes.len() - 1])?;
        Ok(Fits::Yes)
    }
}

/// Whether a pass was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    Yes,
    No,
}

impl Fits {
    pub(crate) fn or_refused(self) -> Result<(), NotRun> {
        match self {
            Self::Yes => Ok(()),
            Self::No => Err(NotRun::Unsupported(
                "it has too many rows, too many positions before them, or other layers".to_owned(),
            )),
        }
    }
}

impl Spans {
    pub(crate) fn new(loaded: &Loaded, model: &Model, page_bytes: u64) -> Result<Self, GpuError> {
        let (gpu, b) = (&loaded.gpu, model.blueprint());
        let layers = loaded.layer_count();
        let angles: usize = b.ropes.iter().map(|rope| rope.frequencies.len()).sum();
        let floats = |label, columns: usize| gpu.empty(label, SPAN_ROWS * columns * 4);
        let results = floats("keys and values", layers * back::layer_stride(2 * b.kv_heads * b.head_dim));
        let spans = Self {
            kept: Kept::new(gpu.host_memory, layers, page_bytes),
            angles: floats("angles", 2 * angles.next_multiple_of(16)),
            rows: floats("rows", 4),
            places: gpu.empty("places", PLACES * 4),
            slots: floats("slots", 2),
            results,
            apart: gpu.empty("spans apart", Divided::bytes(b.heads, b.head_dim)),
            given: Given::default(),
            staging: Staging::default(),
            paces: [Pace::new(), Pace::new()],
        };
        gpu.check()?;
        Ok(spans)
    }

    /// Tells the shaders where rows are and what they see.
    fn describe(&mut self, rows: &SpanRows<'_>, all: &[Listed]) -> Fits {
        let (mut table, mut slots, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, Listed { pages, tree }) in rows.sequences.iter().zip(all) {
            let listed = places.len() as u32;
            places.extend(pages);
            for index in 0..sequence.rows.len() {
                let before = sequence.before.0;
                let path = places.len() as u32;
                if let Some(paths) = sequence.paths {
                    places.extend(paths[index].iter().map(|&row| tree + row as u32));
                    let position = before + paths[index].len() as u32 - 1;
                    table.extend([position, before, listed, path]);
                    slots.extend([tree + index as u32, position]);
                } else {
                    let position = before + index as u32;
                    table.extend([position, position + 1, listed, path]);
                    let page = position as usize / PAGE_TOKENS;
                    slots.extend([pages[page] * PAGE_TOKENS as u32 + position % PAGE_TOKENS as u32, position]);
                }
            }
        }
        if places.len() > PLACES {
            return Fits::No;
        }
        let both = rows.angles.cosines.iter().zip(rows.angles.sines);
        let both: Vec<u32> = both.flat_map(|(cosine, sine)| [cosine.to_bits(), sine.to_bits()]).collect();
        let Self { given, .. } = self;
        given.add(&self.rows, &table);
        given.add(&self.slots, &slots);
        given.add(&self.places, &places);
        given.add(&self.angles, &both);
        Fits::Yes
    }
}

/// Pages and paths of all rows: those of the largest trees, and of the longest contexts.
const PLACES: usize = 1 << 16;

impl Way<'_, '_> {
    /// Copies there what the first node reads.
    fn begin(&mut self, first: Node) {
        let room = &self.loaded.room;
        let given = &mut self.spans.given;
        given.add(&room.residual, bytemuck::cast_slice(self.rows.residual));
        match first {
            Node::Attention { .. } => given.add(&room.qkv, bytemuck::cast_slice(self.rows.projected)),
            Node::Ffn { .. } => given.add(&room.attended, bytemuck::cast_slice(self.rows.attended)),
            _ => {}
        }
        given.bring(&self.loaded.gpu, &mut self.recording);
        if let Node::Attention { layer } = first {
            // The rows' own keys and values are in the cache, and come from there.
            let place = self.loaded.place(self.model, layer);
            for sequence in &self.rows.sequences {
                let end = sequence.before + Tokens(sequence.rows.len() as u32);
                self.spans.kept.update(&self.loaded.gpu, place, sequence, end);
            }
        }
    }

    fn node(&mut self, node: Node) -> Result<(), GpuError> {
        let work = &self.loaded.work;
        let macs = match node {
            Node::Qkv { .. } => work.qkv.macs * self.count as u64,
            Node::Ffn { .. } => work.ffn.macs * self.count as u64,
            _ => self.pairs() * 2 * self.loaded.widths.queries as u64,
        };
        self.room_for(macs)?;
        if let Node::Qkv { layer } = node {
            let place = self.loaded.place(self.model, layer);
            for sequence in &self.rows.sequences {
                self.spans.kept.update(&self.loaded.gpu, place, sequence, sequence.before);
            }
        }
        self.record(node)?;
        if let Node::Qkv { layer } = node {
            self.computed.push(layer);
        }
        Ok(())
    }

    /// Submits what is recorded, if what comes next would make it take too long.
    pub(crate) fn room_for(&mut self, macs: u64) -> Result<(), GpuError> {
        if self.recorded > 0 && self.recorded + macs > self.pace().macs(self.loaded.gpu.displays.longest()) {
            self.submit()?;
        }
        self.recorded += macs;
        Ok(())
    }

    /// Records a node, which is the same for all passes of as many rows.
    fn record(&mut self, node: Node) -> Result<(), GpuError> {
        let Self { loaded, model, spans, launcher, rows, recording, count, computed, .. } = self;
        let (widths, results) = (loaded.widths, computed.len());
        let mut prepared = std::mem::take(&mut spans.kept.prepared);
        let sight = Sight { loaded, model, spans, stride: rows.angles.stride, count: *count };
        let positions = rows.sequences.iter().map(|sequence| sequence.before.as_usize() + sequence.rows.len());
        let divided = match node {
            Node::Attention { .. } => {
                let (heads, side) = (model.blueprint().heads, loaded.gpu.pages_at_once);
                Divided::of(*count, heads, positions.max().unwrap_or(0), side)
            }
            _ => Divided::NOT,
        };
        let part = Part::Node { node, rows: *count, results, divided };
        let recorded = recording.part(&mut prepared, part, |recording| match node {
            Node::Qkv { layer } => {
                launcher.qkv(recording, &loaded.layer(layer)?.0, widths.hidden, *count)?;
                sight.heads(recording, layer, results)
            }
            Node::Attention { layer } => sight.attention(recording, layer, divided),
            Node::Ffn { layer } => {
                let widths = (widths.queries, widths.hidden);
                launcher.feed_forward(recording, &loaded.layer(layer)?.1, widths, *count)
            }
            Node::Embed | Node::Route { .. } | Node::Experts { .. } => Err(GpuError::Model("a node of experts")),
        });
        spans.kept.prepared = prepared;
        recorded
    }

    fn pace(&self) -> &Pace {
        &self.spans.paces[usize::from(self.count >= MANY_ROWS)]
    }

    /// Positions that rows see, of all rows.
    fn pairs(&self) -> u64 {
        let of = |sequence: &duet_model::forward::SpanSequence<'_>| {
            sequence.rows.len() as u64 * (u64::from(sequence.before.0) + sequence.rows.len() as u64)
        };
        self.rows.sequences.iter().map(of).sum()
    }

    /// Submits what is recorded, and waits.
    fn submit(&mut self) -> Result<(), GpuError> {
        let recording = std::mem::replace(&mut self.recording, Recording::timed(&self.loaded.gpu));
        let took = recording.run()?;
        let recorded = std::mem::take(&mut self.recorded);
        self.pace().took(recorded, took);
        Ok(())
    }

    /// Notes that rows in pages are those that the cache is going to have.
    fn keep(&mut self) {
        if !self.loaded.gpu.fusing.is_exact() {
            return;
        }
        for layer in std::mem::take(&mut self.computed) {
            let place = self.loaded.place(self.model, layer);
            for sequence in self.rows.sequences.iter().filter(|sequence| sequence.paths.is_none()) {
                self.spans.kept.keep(place, sequence);
            }
        }
    }

    /// Copies back what the span leaves.
    fn end(mut self, last: Node) -> Result<(), GpuError> {
        let (loaded, room) = (self.loaded, &self.loaded.room);
        let residual = self.rows.residual.len();
        let (beside, floats) = match last {
            Node::Qkv { .. } => (&room.qkv, self.rows.projected.len()),
            Node::Attention { .. } => (&room.attended, self.rows.attended.len()),
            _ => (&room.spare, 0),
        };
        let seeking = self.seek()?;
        let sought = self.sought_piece(seeking);
        let best_floats = sought.floats;
        let mut from = vec![Piece::beginning(&room.residual, residual), Piece::beginning(beside, floats), sought];
        let (back, pieces) = self.back();
        from.extend(pieces);
        let recording = std::mem::replace(&mut self.recording, Recording::new(&loaded.gpu));
        let rows = &mut *self.rows;
        let took = self.spans.staging.show_after(&loaded.gpu, recording, &from, |all| {
            let (found, rest) = all.split_at(residual);
            rows.residual.copy_from_slice(found);
            let (found, rest) = rest.split_at(floats);
            match last {
                Node::Qkv { .. } => rows.projected.copy_from_slice(found),
                Node::Attention { .. } => rows.attended.copy_from_slice(found),
                _ => {}
            }
            let (best, rest) = rest.split_at(best_floats);
            if let (Some(seeking), Some(sought)) = (seeking, &mut rows.sought) {
                sought.found = Some(seeking.of_rows(best));
            }
            back.take(rest, rows.keys_and_values);
        })?;
        self.pace().took(self.recorded, took);
        self.keep();
        Ok(())
    }
}
