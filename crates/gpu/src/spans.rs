//! Spans of nodes: what lies between them stays on the GPU.
//!
//! A span is submitted in pieces, each of which takes as long as a display lets it (`display.rs`) by what pieces took before, so
//! that what the same GPU draws comes between them. A node is the least.

use crate::error::GpuError;
use crate::kept::Kept;
use crate::nodes::Launcher;
use crate::pages::{Listed, Place};
use crate::placed::Loaded;
use crate::recording::Recording;
use crate::staging::Staging;
use duet_model::Model;
use duet_model::forward::{NotRun, SpanRows};
use duet_model::kv::PAGE_TOKENS;
use duet_types::{Node, Tokens};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rows of a pass that spans take at most: beyond them nodes are run one by one.
pub(crate) const SPAN_ROWS: usize = 512;

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
    /// Keys and values of a layer each, as they are to be read back.
    pub(crate) results: Vec<wgpu::Buffer>,
    staging: Staging,
    /// Multiply-accumulates a second, in pieces that were timed.
    pace: Pace,
}

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
        let Some(listed) = spans.kept.prepare(&self.gpu, rows)? else { return Ok(Fits::No) };
        if spans.describe(self, rows, &listed) == Fits::No {
            return Ok(Fits::No);
        }
        let mut way = Way {
            loaded: self,
            model,
            spans,
            launcher: self.launcher(),
            rows,
            count,
            recording: Recording::timed(&self.gpu),
            recorded: 0,
            computed: Vec::new(),
        };
        way.begin(nodes[0]);
        for &node in nodes {
            way.node(node)?;
        }
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
        let results = (0..layers).map(|_| floats("keys and values", 2 * b.kv_heads * b.head_dim)).collect();
        let spans = Self {
            kept: Kept::new(gpu.host_memory, layers, page_bytes),
            angles: floats("angles", 2 * angles.next_multiple_of(16)),
            rows: floats("rows", 4),
            places: gpu.empty("places", PLACES * 4),
            slots: floats("slots", 2),
            results,
            staging: Staging::default(),
            pace: Pace::new(),
        };
        gpu.check()?;
        Ok(spans)
    }

    /// Tells the shaders where rows are and what they see.
    fn describe(&self, loaded: &Loaded, rows: &SpanRows<'_>, all: &[Listed]) -> Fits {
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
        let write =
            |to: &wgpu::Buffer, words: &[u32]| loaded.gpu.queue.write_buffer(to, 0, bytemuck::cast_slice(words));
        write(&self.rows, &table);
        write(&self.slots, &slots);
        write(&self.places, &places);
        let both = rows.angles.cosines.iter().zip(rows.angles.sines);
        let both: Vec<f32> = both.flat_map(|(cosine, sine)| [*cosine, *sine]).collect();
        loaded.write(&self.angles, &both);
        Fits::Yes
    }
}

/// Pages and paths of all rows: those of the largest trees, and of the longest contexts.
const PLACES: usize = 1 << 16;

impl Way<'_, '_> {
    /// Copies there what the first node reads.
    fn begin(&mut self, first: Node) {
        let room = &self.loaded.room;
        self.loaded.write(&room.residual, self.rows.residual);
        match first {
            Node::Attention { .. } => self.loaded.write(&room.qkv, self.rows.projected),
            Node::Ffn { .. } => self.loaded.write(&room.attended, self.rows.attended),
            _ => {}
        }
        if let Node::Attention { layer } = first {
            // The rows' own keys and values are in the cache, and come from there.
            let place = self.place(layer);
            for sequence in &self.rows.sequences {
                let end = sequence.before + Tokens(sequence.rows.len() as u32);
                self.spans.kept.update(&self.loaded.gpu, place, sequence, end);
            }
        }
    }

    fn node(&mut self, node: Node) -> Result<(), GpuError> {
        let work = self.model.work();
        let macs = match node {
            Node::Qkv { .. } => work.qkv.macs * self.count as u64,
            Node::Ffn { .. } => work.ffn.macs * self.count as u64,
            _ => self.pairs() * 2 * self.loaded.widths.queries as u64,
        };
        if self.recorded > 0 && self.recorded + macs > self.spans.pace.macs(self.loaded.gpu.displays.longest()) {
            self.submit()?;
        }
        let Self { loaded, launcher, recording, count, .. } = self;
        let widths = loaded.widths;
        match node {
            Node::Qkv { layer } => {
                launcher.qkv(recording, &loaded.layer(layer)?.0, widths.hidden, *count)?;
                self.heads(layer)?;
            }
            Node::Attention { layer } => self.attention(layer)?,
            Node::Ffn { layer } => {
                let widths = (widths.queries, widths.hidden);
                launcher.feed_forward(recording, &loaded.layer(layer)?.1, widths, *count)?;
            }
            Node::Embed | Node::Route { .. } | Node::Experts { .. } => {
                return Err(GpuError::Model("a node of experts"));
            }
        }
        self.recorded += macs;
        Ok(())
    }

    /// Where a layer's keys and values are.
    pub(crate) fn place(&self, layer: usize) -> Place {
        let b = self.model.blueprint();
        let in_cache = b.place(layer);
        Place { layer, in_cache, here: in_cache - b.place(self.loaded.first) }
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
        self.spans.pace.took(std::mem::take(&mut self.recorded), took);
        Ok(())
    }

    /// Notes that rows in pages are those that the cache is going to have.
    fn keep(&mut self) {
        if !self.loaded.gpu.fusing.is_exact() {
            return;
        }
        for layer in std::mem::take(&mut self.computed) {
            let place = self.place(layer);
            for sequence in self.rows.sequences.iter().filter(|sequence| sequence.paths.is_none()) {
                self.spans.kept.keep(place, sequence);
            }
        }
    }

    /// Copies back what the span leaves.
    fn end(mut self, last: Node) -> Result<(), GpuError> {
        let (loaded, room) = (self.loaded, &self.loaded.room);
        let width = self.rows.keys_and_values.first().map_or(0, Vec::len);
        let mut residual = vec![0.0; self.rows.residual.len()];
        let mut parts: Vec<(&wgpu::Buffer, usize)> = vec![(&room.residual, residual.len())];
        let mut beside = match last {
            Node::Qkv { .. } => vec![0.0; self.rows.projected.len()],
            Node::Attention { .. } => vec![0.0; self.rows.attended.len()],
            _ => Vec::new(),
        };
        match last {
            Node::Qkv { .. } => parts.push((&room.qkv, beside.len())),
            Node::Attention { .. } => parts.push((&room.attended, beside.len())),
            _ => {}
        }
        parts.extend(self.spans.results[..self.computed.len()].iter().map(|buffer| (buffer, width)));
        let mut all = vec![0.0; parts.iter().map(|(_, floats)| floats).sum()];
        let recording = std::mem::replace(&mut self.recording, Recording::new(&loaded.gpu));
        let took = self.spans.staging.read_after(&loaded.gpu, recording, &parts, &mut all)?;
        self.spans.pace.took(self.recorded, took);
        let (found, rest) = all.split_at(residual.len());
        residual.copy_from_slice(found);
        let (found, rest) = rest.split_at(beside.len());
        beside.copy_from_slice(found);
        self.keep();
        // Everything is here: nothing can fail any more.
        self.rows.residual.copy_from_slice(&residual);
        match last {
            Node::Qkv { .. } => self.rows.projected.copy_from_slice(&beside),
            Node::Attention { .. } => self.rows.attended.copy_from_slice(&beside),
            _ => {}
        }
        for (to, from) in self.rows.keys_and_values.iter_mut().zip(rest.chunks_exact(width.max(1))) {
            to.copy_from_slice(from);
        }
        Ok(())
    }
}
