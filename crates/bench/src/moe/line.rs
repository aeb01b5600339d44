//! What is printed: one line for each setting, as JSON or as text.

use super::counts::CountsFrom;
use crate::table_5::TABLE_5;
use duet_model::forward::FateCounts;
use duet_types::{Bytes, Nanos};
use serde::Serialize;
use std::fmt;

/// A setting that was measured.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Line {
    /// One layer's experts in groups of one size and capacity.
    Layer(LayerLine),
    /// What a launch more costs.
    Slope(SlopeLine),
    /// Where the time of a layer goes.
    Breakdown(BreakdownLine),
    /// A prompt read and answered.
    Scheme(SchemeLine),
    /// The CPU alone.
    Native(NativeLine),
}

/// One layer's experts in groups of one size and capacity: medians of `n` chunks.
#[derive(Clone, Debug, Serialize)]
pub struct LayerLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) threads: u16,
    /// Experts of a group.
    pub(super) group: usize,
    pub(super) capacity: u32,
    /// Of a chunk that fills all slots.
    pub(super) rows: f64,
    pub(super) launches: usize,
    /// Compiling all groups, once.
    pub(super) compile_ms: f64,
    /// Taking all of them up again, once.
    pub(super) load_ms: f64,
    /// Launches alone: nothing is gathered or scattered.
    pub(super) ms_per_token: f64,
    /// All groups as they were exported.
    pub(super) bytes: u64,
}

/// What a launch more costs, of the same work in more groups.
#[derive(Clone, Debug, Serialize)]
pub struct SlopeLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) launch_us: f64,
}

/// Where the time of a layer goes: medians.
#[derive(Clone, Debug, Serialize)]
pub struct BreakdownLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) threads: u16,
    pub(super) scheme: &'static str,
    /// Norm, projection, rope, and the cache written.
    pub(super) qkv_ms: f64,
    pub(super) attention_ms: f64,
    /// Output projection.
    pub(super) output_ms: f64,
    /// Norm, scores and choice.
    pub(super) routing_ms: f64,
    /// Rows divided among launches, gathered and padded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packing_ms: Option<f64>,
    /// Launches, from starting to having waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) experts_ms: Option<f64>,
    /// Experts that the CPU computes, while the first launch runs.
    pub(super) crew_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scatter_ms: Option<f64>,
    /// The whole layer.
    pub(super) total_ms: f64,
    /// The whole layer's.
    pub(super) ms_per_token: f64,
    #[serde(flatten)]
    pub(super) shares: Shares,
}

/// A prompt read and answered: medians.
#[derive(Clone, Debug, Serialize)]
pub struct SchemeLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) threads: u16,
    pub(super) scheme: &'static str,
    pub(super) prompt: u32,
    pub(super) chunk: u32,
    /// What capacities and groups follow from.
    pub(super) counts: CountsFrom,
    /// Until the first token.
    pub(super) ttft_ms: f64,
    /// Until the last.
    pub(super) total_ms: f64,
    /// Of the prompt.
    pub(super) ms_per_token: f64,
    /// Of the answer's tokens but the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decode_ms_per_token: Option<f64>,
    /// What graphs of experts take on the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resident_bytes: Option<u64>,
    /// While the prompt was read.
    #[serde(flatten)]
    pub(super) shares: Shares,
    /// How many times sooner than the CPU alone, in the same chunks, the first token is there: the median of turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) times_cpu_only: Option<f64>,
    /// The same against the naive scheme, which reads in the first of the chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) times_naive: Option<f64>,
    /// Whether the token after the prompt is the CPU's.
    pub(super) same_next: bool,
    /// Tokens of the answer that are the CPU's, until the first other one.
    pub(super) same_tokens: usize,
}

/// Tokens a second on the CPU alone: medians.
#[derive(Clone, Debug, Serialize)]
pub struct NativeLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) threads: u16,
    pub(super) tok_s: f64,
    pub(super) ms_per_token: f64,
    /// llama.cpp's in the same turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) llama_tok_s: Option<f64>,
    /// Ours over llama.cpp's: the median of turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
}

/// What became of rows' experts, as parts of all of them; absent where nothing was launched.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Shares {
    pub(super) launches: u64,
    /// Slots that held no row, of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) padding: Option<f64>,
    pub(super) dropped: f64,
    /// Computed by the CPU for want of room.
    pub(super) spilled: f64,
    pub(super) on_device: f64,
}

/// A layer's steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) qkv: Nanos,
    pub(super) attention: Nanos,
    pub(super) output: Nanos,
    pub(super) routing: Nanos,
    pub(super) packing: Nanos,
    pub(super) experts: Nanos,
    pub(super) crew: Nanos,
    pub(super) scatter: Nanos,
}

impl Steps {
    /// All of them.
    pub(super) fn total(&self) -> Nanos {
        let Self { qkv, attention, output, routing, packing, experts, crew, scatter } = *self;
        [qkv, attention, output, routing, packing, experts, crew, scatter].into_iter().sum()
    }
}

impl Shares {
    pub(super) fn of(places: &FateCounts, launches: u64, slots: u64) -> Self {
        let part = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        Self {
            launches,
            padding: (slots > 0).then(|| 1.0 - part(places.launched, slots)),
            dropped: part(places.dropped, places.all()),
            spilled: part(places.spilled, places.all()),
            on_device: part(places.launched, places.all()),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer(line) => line.fmt(f),
            Self::Slope(line) => write!(f, "{:38} {:.1} us for each launch more", line.setting, line.launch_us),
            Self::Breakdown(line) => line.fmt(f),
            Self::Scheme(line) => line.fmt(f),
            Self::Native(line) => line.fmt(f),
        }
    }
}

impl fmt::Display for LayerLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:38} {:3} launches, {:.4} ms/token of {:.0}; compile {:.0} ms, load {:.0} ms, {}",
            self.setting,
            self.launches,
            self.ms_per_token,
            self.rows,
            self.compile_ms,
            self.load_ms,
            Bytes(self.bytes)
        )?;
        let published =
            |(group, capacity, _): &&(u32, u32, f64)| (*group as usize, *capacity) == (self.group, self.capacity);
        match TABLE_5.iter().find(published) {
            Some((_, _, ms)) => write!(f, " (paper's device and model: {ms:.2} ms/token)"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for BreakdownLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { qkv_ms, attention_ms, output_ms, routing_ms, crew_ms, total_ms, .. } = self;
        write!(f, "{:34} {total_ms:6.2} ms: qkv {qkv_ms:.2}, attention {attention_ms:.2}, ", self.setting)?;
        write!(f, "output {output_ms:.2}, routing {routing_ms:.2}, CPU's experts {crew_ms:.2}")?;
        let device = [("packing", self.packing_ms), ("launches", self.experts_ms), ("scatter", self.scatter_ms)];
        let known = device.into_iter().filter_map(|(name, ms)| Some((name, ms?)));
        known.into_iter().try_for_each(|(name, ms)| write!(f, ", {name} {ms:.2}"))?;
        write!(f, "; {}", self.shares)
    }
}

impl fmt::Display for SchemeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:40} first token {:6.0} ms, all {:6.0} ms, {:.3} ms/token read",
            self.setting, self.ttft_ms, self.total_ms, self.ms_per_token
        )?;
        let parts = [
            (self.decode_ms_per_token, " ms/token decoded"),
            (self.times_cpu_only, " x the CPU alone"),
            (self.times_naive, " x the naive scheme"),
        ];
        let known = parts.into_iter().filter_map(|(value, what)| Some((value?, what)));
        known.into_iter().try_for_each(|(value, what)| write!(f, ", {value:.2}{what}"))?;
        let same = if self.same_next { "the same" } else { "another" };
        write!(f, "; {}; {same} next token, {} tokens the same", self.shares, self.same_tokens)?;
        write!(f, "; {}", self.counts.words())
    }
}

impl fmt::Display for NativeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:38} {:7.1} tok/s on {} threads", self.setting, self.tok_s, self.threads)?;
        match self.llama_tok_s.zip(self.ratio) {
            Some((other, ratio)) => write!(f, "; llama.cpp {other:7.1} tok/s, {ratio:.2} x"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        write!(f, "{} launches, {:.0} % on the device", self.launches, percent(self.on_device))?;
        if let Some(padding) = self.padding {
            write!(f, ", {:.0} % padding", percent(padding))?;
        }
        write!(f, ", {:.1} % spilled, {:.1} % dropped", percent(self.spilled), percent(self.dropped))
    }
}
