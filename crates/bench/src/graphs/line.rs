//! What is printed: one line for each setting, as JSON or as text.

use duet_types::Bytes;
use serde::Serialize;
use std::fmt;

/// A setting that was measured.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Line {
    /// A kind of block in a shape.
    Block(BlockLine),
    /// Launches.
    Launch(LaunchLine),
    /// Experts one by one and in a group.
    Experts(ExpertsLine),
    /// A planner against the best plan.
    Ratio(RatioLine),
    /// What graphs of a shape cost, block by block, as plans are made of it.
    Profile(ProfileLine),
    /// Memory of one set of graphs and of two.
    Memory(MemoryLine),
    /// A prompt that was read and answered.
    Progressive(ProgressiveLine),
    /// A prompt on graphs for exactly its rows.
    Exact(ExactLine),
    /// Through the graphs, beside the CPU's kernels.
    EndToEnd(EndToEndLine),
}

/// A kind of block in a shape: medians.
#[derive(Clone, Debug, Serialize)]
pub struct BlockLine {
    pub(super) setting: String,
    pub(super) n: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compile_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) export_ms: Option<f64>,
    /// Taking the exported graph up again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_ms: Option<f64>,
    /// Of the run with most rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ms_per_token: Option<f64>,
    /// The exported graph.
    pub(super) bytes: u64,
    /// What memory in use grew by when it was taken up and run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resident_bytes: Option<u64>,
    pub(super) runs: Vec<RunTime>,
}

/// What one run took, for a number of rows.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RunTime {
    pub(super) rows: u32,
    pub(super) ms: f64,
}

/// What a launch costs.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchLine {
    pub(super) setting: String,
    pub(super) n: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) launch_us: Option<f64>,
}

/// The same experts in one graph and in several.
#[derive(Clone, Debug, Serialize)]
pub struct ExpertsLine {
    pub(super) setting: String,
    pub(super) n: usize,
    /// Launches where each has its graph; in a group it is one.
    pub(super) launches_apart: usize,
    pub(super) apart_us: f64,
    pub(super) grouped_us: f64,
    pub(super) apart_rows_s: f64,
    pub(super) grouped_rows_s: f64,
    pub(super) speedup: f64,
}

/// How many times the best plan's time a planner's plans take.
#[derive(Clone, Debug, Serialize)]
pub struct RatioLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) ratio_p10: f64,
    pub(super) ratio_p50: f64,
    pub(super) ratio_p90: f64,
    pub(super) ratio_max: f64,
}

/// Graphs of one shape: sums over all blocks.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) blocks: usize,
    pub(super) load_ms: f64,
    /// A chunk of 256 rows at the beginning of a prompt, attention included.
    pub(super) chunk_ms: f64,
    pub(super) bytes: u64,
}

/// Memory in use.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryLine {
    pub(super) setting: &'static str,
    pub(super) n: usize,
    /// Growth with the graphs that decode.
    pub(super) one_set_bytes: u64,
    /// Growth with both.
    pub(super) two_sets_bytes: u64,
}

/// A prompt that was read and answered: medians.
#[derive(Clone, Debug, Serialize)]
pub struct ProgressiveLine {
    pub(super) setting: &'static str,
    pub(super) method: String,
    pub(super) prompt: u32,
    pub(super) output: usize,
    pub(super) n: usize,
    /// Until the prompt's last row has its logits, from which the first token of the answer comes.
    pub(super) prefill_ms: f64,
    /// Until the graphs that decode have made their first token.
    pub(super) ttft_ms: f64,
    /// Until the last token.
    pub(super) total_ms: f64,
    /// How long graphs were waited for.
    pub(super) wait_ms: f64,
    /// How much later than with both graphs loaded decoding could begin, of the total: what exchanging them costs, the
    /// cores that loading takes included. Absent where nothing is exchanged, or `both` was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switch_share: Option<f64>,
    /// Loading the graphs that are there when the prompt comes, before its time begins.
    pub(super) initial_load_ms: f64,
    /// Until decoding might begin, as the plan predicted it.
    pub(super) predicted_ready_ms: f64,
    /// Until decoding could begin.
    pub(super) ready_ms: f64,
    /// The most that graphs took in the cache's bytes at once.
    pub(super) peak_graph_bytes: u64,
    /// Tokens of the answer that are those of the first method, until the first other one.
    pub(super) same_tokens: usize,
    /// The largest difference of a logit after the prompt to the first method's, over the largest logit.
    pub(super) logits_off: f64,
}

/// A prompt on graphs for exactly its rows, and what these cost: medians.
#[derive(Clone, Debug, Serialize)]
pub struct ExactLine {
    pub(super) setting: &'static str,
    pub(super) n: usize,
    pub(super) threads: u16,
    pub(super) prompt: u32,
    /// Making the graphs of all layers.
    pub(super) compile_ms: f64,
    /// Reading the prompt in chunks of 256 rows, the last one padded.
    pub(super) padded_ms: f64,
    /// Reading it on graphs for exactly its rows.
    pub(super) exact_ms: f64,
    /// Reading it with the CPU's kernels on the same threads.
    pub(super) native_ms: f64,
    /// The exact graphs' time over the padded chunks' of the same turn.
    pub(super) ratio: f64,
    pub(super) bytes: u64,
}

/// Tokens a second: medians.
#[derive(Clone, Debug, Serialize)]
pub struct EndToEndLine {
    pub(super) setting: String,
    pub(super) n: usize,
    pub(super) threads: u16,
    pub(super) graphs_tok_s: f64,
    pub(super) native_tok_s: f64,
    /// The graphs' of the same turn over the kernels': the median.
    pub(super) ratio: f64,
    /// Of the graphs.
    pub(super) ms_per_token: f64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(line) => line.fmt(f),
            Self::Launch(line) => write!(f, "{:44} {}", line.setting, optional(line.launch_us, "us")),
            Self::Experts(line) => write!(
                f,
                "{:34} apart {:8.1} us, {:7.0} rows/s; grouped {:8.1} us, {:7.0} rows/s; {:.2} x",
                line.setting, line.apart_us, line.apart_rows_s, line.grouped_us, line.grouped_rows_s, line.speedup
            ),
            Self::Ratio(line) => write!(
                f,
                "{:34} of the best plan's time: {:.3} (10 % {:.3}, 90 % {:.3}, worst {:.3}), {} problems",
                line.setting, line.ratio_p50, line.ratio_p10, line.ratio_p90, line.ratio_max, line.n
            ),
            Self::Profile(line) => write!(
                f,
                "{:34} {} blocks: loading all {:.0} ms, a chunk of 256 {:.0} ms, {}",
                line.setting,
                line.blocks,
                line.load_ms,
                line.chunk_ms,
                Bytes(line.bytes)
            ),
            Self::Memory(line) => write!(
                f,
                "memory in use grows by {} with one set of graphs, by {} with two",
                Bytes(line.one_set_bytes),
                Bytes(line.two_sets_bytes)
            ),
            Self::Progressive(line) => line.fmt(f),
            Self::Exact(line) => write!(
                f,
                "{:4} tokens: {:6.0} ms in padded chunks, {:6.0} ms on graphs of its own ({:.2} x), {:6.0} ms by the kernels; \
                 the graphs take {:.0} ms to make and {}",
                line.prompt,
                line.padded_ms,
                line.exact_ms,
                line.ratio,
                line.native_ms,
                line.compile_ms,
                Bytes(line.bytes)
            ),
            Self::EndToEnd(line) => write!(
                f,
                "{:34} graphs {:7.1} tok/s, kernels {:7.1} tok/s, {:.2} x, {} threads",
                line.setting, line.graphs_tok_s, line.native_tok_s, line.ratio, line.threads
            ),
        }
    }
}

impl fmt::Display for BlockLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:24} compile {}, export {}, load {}; {}",
            self.setting,
            optional(self.compile_ms, "ms"),
            optional(self.export_ms, "ms"),
            optional(self.load_ms, "ms"),
            Bytes(self.bytes)
        )?;
        if let Some(bytes) = self.resident_bytes {
            write!(f, ", {} in memory", Bytes(bytes))?;
        }
        self.runs.iter().try_for_each(|run| write!(f, "; {} rows {:.2} ms", run.rows, run.ms))
    }
}

impl fmt::Display for ProgressiveLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:4} tokens, {:19} prompt {:6.0} ms, ready {:6.0} (predicted {:6.0}), first decoded {:6.0}, all {:6.0}, waits {:4.0}",
            self.prompt,
            self.method,
            self.prefill_ms,
            self.ready_ms,
            self.predicted_ready_ms,
            self.ttft_ms,
            self.total_ms,
            self.wait_ms,
        )?;
        if let Some(share) = self.switch_share {
            write!(f, ", switching {:.1} %", 100.0 * share)?;
        }
        let (same, of, bytes) = (self.same_tokens, self.output, Bytes(self.peak_graph_bytes));
        write!(f, ", graphs {bytes}, {same} of {of} tokens the same, logits off by {:.0e}", self.logits_off)
    }
}

fn optional(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} {unit}"))
}
