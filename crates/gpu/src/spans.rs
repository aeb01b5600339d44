//! Spans of nodes: what lies between them stays on the GPU.
//!
//! A span is submitted in pieces, each of which takes about [`PIECE`] by what pieces took before, so that a display that the
//! same GPU draws comes between them. A node is the least.

use crate::error::GpuError;
use crate::nodes::{Launcher, whole};
use crate::pages::Pages;
use crate::placed::Loaded;
use crate::recording::{Groups, Recording};
use crate::shader::{ATTENTION, HEADS};
use crate::staging::Staging;
use duet_model::Model;
use duet_model::forward::{NotRun, SpanRows};
use duet_model::kv::PAGE_TOKENS;
use duet_types::{Node, Tokens};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a submission may take.
const PIECE: Duration = Duration::from_millis(10);

/// Rows of a pass that spans take at most: beyond them nodes are run one by one.
pub(crate) const SPAN_ROWS: usize = 512;

/// What spans need beside the nodes' weights.
#[derive(Debug)]
pub(crate) struct Spans {
    pub(crate) pages: Pages,
    cosines: wgpu::Buffer,
    sines: wgpu::Buffer,
    /// Of each row: position, paged positions, and where pages and path are in `places`.
    rows: wgpu::Buffer,
    places: wgpu::Buffer,
    slots: wgpu::Buffer,
    /// Keys and values of a layer each, as they are to be read back.
    results: Vec<wgpu::Buffer>,
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

    fn macs(&self) -> u64 {
        (self.0.load(Ordering::Relaxed) as f64 * PIECE.as_secs_f64()) as u64
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
struct Way<'a, 'r> {
    loaded: &'a Loaded,
    model: &'a Model,
    spans: &'a mut Spans,
    launcher: Launcher<'a>,
    rows: &'a mut SpanRows<'r>,
    count: usize,
    recording: Recording<'a>,
    /// Multiply-accumulates that are recorded and not submitted.
    recorded: u64,
    /// Layers whose keys and values were computed.
    computed: usize,
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
        let mut forks = Recording::new(&self.gpu);
        let Some(pages) = spans.pages.prepare(&mut forks, rows) else { return Ok(Fits::No) };
        // Before anything is written to what was copied.
        forks.submit();
        if spans.describe(self, rows, &pages) == Fits::No {
            return Ok(Fits::No);
        }
        let mut way = Way {
            loaded: self,
            model,
            spans,
            launcher: self.launcher(),
            rows,
            count,
            recording: Recording::new(&self.gpu),
            recorded: 0,
            computed: 0,
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
        let pages = Pages::new(gpu, layers, b.kv_heads, b.head_dim, page_bytes)?;
        let angles: usize = b.ropes.iter().map(|rope| rope.frequencies.len()).sum();
        let floats = |label, columns: usize| gpu.empty(label, SPAN_ROWS * columns * 4);
        let results = (0..layers).map(|_| floats("keys and values", 2 * b.kv_heads * b.head_dim)).collect();
        let spans = Self {
            pages,
            cosines: floats("cosines", angles.next_multiple_of(16)),
            sines: floats("sines", angles.next_multiple_of(16)),
            rows: floats("rows", 4),
            places: gpu.empty("places", PLACES * 4),
            slots: floats("slots", 1),
            results,
            staging: Staging::default(),
            pace: Pace::new(),
        };
        gpu.check()?;
        Ok(spans)
    }

    /// Tells the shaders where rows are and what they see.
    fn describe(&self, loaded: &Loaded, rows: &SpanRows<'_>, pages: &[Vec<u32>]) -> Fits {
        let (mut table, mut slots, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, pages) in rows.sequences.iter().zip(pages) {
            let listed = places.len() as u32;
            places.extend(pages);
            for index in 0..sequence.rows.len() {
                let before = sequence.before.0;
                let path = places.len() as u32;
                if let Some(paths) = sequence.paths {
                    places.extend(paths[index].iter().map(|row| (sequence.rows.start + row) as u32));
                    table.extend([before + paths[index].len() as u32 - 1, before, listed, path]);
                    slots.push(u32::MAX);
                } else {
                    let position = before + index as u32;
                    table.extend([position, position + 1, listed, path]);
                    let page = position as usize / PAGE_TOKENS;
                    slots.push(pages[page] * PAGE_TOKENS as u32 + position % PAGE_TOKENS as u32);
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
        loaded.write(&self.cosines, rows.angles.cosines);
        loaded.write(&self.sines, rows.angles.sines);
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
            let place = (layer, self.place(layer));
            for sequence in &self.rows.sequences {
                let end = sequence.before + Tokens(sequence.rows.len() as u32);
                self.spans.pages.update(&self.loaded.gpu, place, sequence, end);
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
        if self.recorded > 0 && self.recorded + macs > self.spans.pace.macs() {
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
                let widths = (widths.queries, widths.hidden, widths.ffn);
                launcher.feed_forward(recording, &loaded.layer(layer)?.1, widths, *count)?;
            }
            Node::Embed | Node::Route { .. } | Node::Experts { .. } => {
                return Err(GpuError::Model("a node of experts"));
            }
        }
        self.recorded += macs;
        Ok(())
    }

    /// Where a layer's keys and values are, among those of the layers that are there.
    fn place(&self, layer: usize) -> usize {
        let b = self.model.blueprint();
        b.place(layer) - b.place(self.loaded.first)
    }

    /// Positions that rows see, of all rows.
    fn pairs(&self) -> u64 {
        let of = |sequence: &duet_model::forward::SpanSequence<'_>| {
            sequence.rows.len() as u64 * (u64::from(sequence.before.0) + sequence.rows.len() as u64)
        };
        self.rows.sequences.iter().map(of).sum()
    }

    /// Norms of heads, rope, and keys and values to where they belong.
    fn heads(&mut self, layer: usize) -> Result<(), GpuError> {
        let (loaded, b) = (self.loaded, self.model.blueprint());
        let place = self.place(layer);
        for sequence in &self.rows.sequences {
            self.spans.pages.update(&loaded.gpu, (layer, place), sequence, sequence.before);
        }
        let rope = b.layers[layer].rope;
        let first: usize = b.ropes[..rope].iter().map(|rope| rope.frequencies.len()).sum();
        let norms = loaded.head_norms(layer);
        let constants = [
            ("HEADS", b.heads as u32),
            ("KV_HEADS", b.kv_heads as u32),
            ("DIM", b.head_dim as u32),
            ("PAIRS", b.ropes[rope].frequencies.len() as u32),
            ("NORMED", norms.is_some().into()),
        ];
        let pipeline = loaded.gpu.pipeline(&HEADS, 1, &constants)?;
        let [query, key] = norms.map_or([&loaded.room.moments; 2], |norms| norms.each_ref());
        let qkv = &loaded.room.qkv;
        let spans = &*self.spans;
        let (pages, results) = (spans.pages.layer(place), &spans.results[self.computed]);
        let buffers = [qkv, &spans.cosines, &spans.sines, query, key, &spans.slots, pages, results];
        let told = [self.count as u32, self.rows.angles.stride as u32, first as u32, b.epsilon.to_bits()];
        let heads = b.heads + 2 * b.kv_heads;
        self.recording.launch(&pipeline, &buffers.map(whole), &told, Groups(heads.div_ceil(64), self.count));
        self.computed += 1;
        Ok(())
    }

    fn attention(&mut self, layer: usize) -> Result<(), GpuError> {
        let (loaded, b) = (self.loaded, self.model.blueprint());
        let constants = [
            ("HEADS", b.heads as u32),
            ("KV_HEADS", b.kv_heads as u32),
            ("DIM", b.head_dim as u32),
            ("WINDOW", b.layers[layer].window.unwrap_or(0) as u32),
        ];
        let pipeline = loaded.gpu.pipeline(&ATTENTION, 1, &constants)?;
        let pages = self.spans.pages.layer(self.place(layer));
        let buffers = [&loaded.room.qkv, &self.spans.rows, &self.spans.places, pages, &loaded.room.attended];
        let told = [b.attention_scale.to_bits()];
        self.recording.launch(&pipeline, &buffers.map(whole), &told, Groups(b.heads, self.count));
        Ok(())
    }

    /// Submits what is recorded, and waits.
    fn submit(&mut self) -> Result<(), GpuError> {
        let recording = std::mem::replace(&mut self.recording, Recording::new(&self.loaded.gpu));
        let began = Instant::now();
        recording.run()?;
        self.spans.pace.took(std::mem::take(&mut self.recorded), began.elapsed());
        Ok(())
    }

    /// Copies back what the span leaves.
    fn end(mut self, last: Node) -> Result<(), GpuError> {
        self.submit()?;
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
        parts.extend(self.spans.results[..self.computed].iter().map(|buffer| (buffer, width)));
        let mut all = vec![0.0; parts.iter().map(|(_, floats)| floats).sum()];
        self.spans.staging.read(&loaded.gpu, &parts, &mut all)?;
        let (found, rest) = all.split_at(residual.len());
        residual.copy_from_slice(found);
        let (found, rest) = rest.split_at(beside.len());
        beside.copy_from_slice(found);
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
