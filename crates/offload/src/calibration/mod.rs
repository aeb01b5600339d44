//! Between which numbers a model's values lie, for devices whose graphs compute in integers.
//!
//! The model reads a few short texts of different kinds with its own kernels, and a device that runs nothing writes down what
//! each block is given (`recorder.rs`). The reference interpreter then runs the blocks on that, and the ranges of all values
//! between, united over the texts, are widened by a margin: what lies outside would be cut off. An expert is run on the rows
//! that its router sends it, and on a few of all rows beside: other texts will send it others. (NPUMoE §3.3 and CoordGen §4
//! take their scales offline, too)

mod recorder;

use duet_graphs::{Block, CalibrationError, Range, RangeError, Ranges, calibrate};
use duet_kernels::crew::Solo;
use duet_model::Model;
use duet_model::forward::{Activations, Node, NodeOrder, Pass, PassError, Segment};
use duet_model::kv::KvFormat;
use duet_model::tokenizer::SpecialTokens;
use duet_runtimes::Digest;
use duet_types::{TokenId, Tokens};
use recorder::Recorder;

/// Why a model's ranges are not known.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The model could not read the text.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A block cannot be run on what it was given.
    #[error(transparent)]
    Block(#[from] CalibrationError),
    /// A value is not finite.
    #[error(transparent)]
    Range(#[from] RangeError),
}

/// What a model's blocks are given while it reads texts: rows, one behind the other.
#[derive(Debug, Default)]
pub struct Seen {
    rows: usize,
    layers: Vec<SeenLayer>,
    head: Vec<f32>,
}

/// What a layer's blocks are given.
#[derive(Debug, Default)]
struct SeenLayer {
    qkv: Vec<f32>,
    /// The second block of a dense layer, or the output projection of one with experts: attended, residual.
    attended: [Vec<f32>; 2],
    experts: SeenExperts,
}

/// What a layer's experts are given; nothing in a dense one.
#[derive(Debug, Default)]
struct SeenExperts {
    normed: Vec<f32>,
    /// Of each row: the experts that it goes to.
    routes: Vec<Vec<u32>>,
}

impl Seen {
    /// Lets the model read the texts that are chosen for it, on this thread.
    ///
    /// # Errors
    /// If the model has no memory to read them.
    pub fn of(model: &Model) -> Result<Self, CalibrateError> {
        Self::of_texts(model, &TEXTS, ROWS_MAX)
    }

    /// What the ranges follow from, beside the model.
    pub(crate) fn settings() -> Digest {
        Digest::of(format!("{TEXTS:?} {ROWS_MAX} {EXPERT_ROWS} {MARGIN}").as_bytes())
    }

    /// The same of the first tokens of another text.
    ///
    /// # Errors
    /// If the model has no memory to read it.
    pub fn while_reading(model: &Model, text: &str, rows_max: Tokens) -> Result<Self, CalibrateError> {
        Self::of_texts(model, &[text], rows_max)
    }

    fn of_texts(model: &Model, texts: &[&str], rows_max: Tokens) -> Result<Self, CalibrateError> {
        let (recorder, mut rows) = (Recorder::default(), 0);
        for text in texts {
            rows += read(model, text, rows_max, &recorder)?;
        }
        Ok(Self { rows, ..recorder.seen() })
    }

    /// Tokens that were read.
    #[must_use]
    pub fn rows(&self) -> Tokens {
        Tokens(self.rows as u32)
    }

    /// What layer `layer`'s first block was given.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn qkv_inputs(&self, layer: usize) -> [&[f32]; 1] {
        [&self.layers[layer].qkv]
    }

    /// What layer `layer`'s second block was given, in the order of its ports; where there are experts, that is the output
    /// projection.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn feed_forward_inputs(&self, layer: usize) -> [&[f32]; 2] {
        let [attended, residual] = &self.layers[layer].attended;
        [attended, residual]
    }

    /// The ranges of layer `layer`'s first block.
    ///
    /// # Errors
    /// If a value is not finite.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn qkv(&self, layer: usize, block: &Block) -> Result<Ranges, CalibrateError> {
        self.ranges(block, &self.qkv_inputs(layer))
    }

    /// The ranges of layer `layer`'s second block, or of its output projection where there are experts.
    ///
    /// # Errors
    /// If a value is not finite.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn feed_forward(&self, layer: usize, block: &Block) -> Result<Ranges, CalibrateError> {
        self.ranges(block, &self.feed_forward_inputs(layer))
    }

    /// The ranges of the head.
    ///
    /// # Errors
    /// If a value is not finite.
    pub fn head(&self, block: &Block) -> Result<Ranges, CalibrateError> {
        self.ranges(block, &[&self.head])
    }

    /// The ranges of the expert of layer `layer` that all rows go to.
    pub(crate) fn shared(&self, layer: usize, block: &Block) -> Result<Ranges, CalibrateError> {
        self.ranges(block, &[&self.layers[layer].experts.normed])
    }

    /// The ranges of one of layer `layer`'s experts, which is a block of its own.
    pub(crate) fn expert(&self, layer: usize, expert: u32, block: &Block) -> Result<Ranges, CalibrateError> {
        let SeenExperts { normed, routes } = &self.layers[layer].experts;
        let width = block.inputs().first().map_or(1, |port| port.width);
        let rows = expert_rows(routes, expert);
        let given: Vec<f32> = rows.iter().flat_map(|row| &normed[row * width..(row + 1) * width]).copied().collect();
        ranges(block, Tokens(rows.len() as u32), &[&given])
    }

    fn ranges(&self, block: &Block, inputs: &[&[f32]]) -> Result<Ranges, CalibrateError> {
        ranges(block, self.rows(), inputs)
    }
}

/// Lets the model read a text; how many tokens that are.
fn read(model: &Model, text: &str, rows_max: Tokens, recorder: &Recorder) -> Result<usize, CalibrateError> {
    let mut tokens = model.tokenizer().encode_prompt(text, SpecialTokens::AsText);
    tokens.truncate(rows_max.min(model.config().context).as_usize());
    if tokens.is_empty() {
        // A vocabulary without these letters has a first token all the same.
        tokens.push(TokenId(0));
    }
    let rows = tokens.len();
    let table = model.kv_pool(KvFormat::F16, Tokens(rows as u32)).table();
    let segments = vec![Segment::new(table, tokens)];
    let mut pass = Pass::new(model, Activations::new(model, rows), segments).map_err(|refused| refused.error)?;
    // Routed by a node of their own, experts are seen.
    let launches = usize::from(model.blueprint().experts.is_some());
    for node in NodeOrder::with_launches(model.config().layers, launches).nodes() {
        let run = match node {
            Node::Route { layer } => model.route_on(recorder, &mut pass, layer, &Solo).map(|_| ()),
            Node::Experts { layer, launch } => model.launch_on(recorder, &mut pass, (layer, launch), &Solo),
            _ => model.run_node_on(recorder, &mut pass, node, 0..rows, &Solo),
        };
        // It has run nothing, only looked.
        if run.is_err() {
            model.run_node(&mut pass, node, 0..rows, &Solo);
        }
    }
    let all: Vec<usize> = (0..rows).collect();
    let _ = model.logits_on(recorder, &mut pass, &all, &mut Vec::new());
    Ok(rows)
}

/// The rows that an expert is run on: its own, as many as are enough, and some of all.
fn expert_rows(routes: &[Vec<u32>], expert: u32) -> Vec<usize> {
    let own = (0..routes.len()).filter(|&row| routes[row].contains(&expert)).take(EXPERT_ROWS);
    let step = routes.len().div_ceil(EXPERT_ROWS / 2).max(1);
    let mut rows: Vec<usize> = own.chain((0..routes.len()).step_by(step)).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// What a block's values were on these rows, widened.
fn ranges(block: &Block, rows: Tokens, inputs: &[&[f32]]) -> Result<Ranges, CalibrateError> {
    let seen = calibrate(block, rows, inputs)?;
    let wider = |range: &Range| Range::new(MARGIN * range.least(), MARGIN * range.most());
    Ok(Ranges::new(block, seen.values().iter().map(wider).collect())?)
}

/// Prose, programs, calls of tools and other scripts, so that few values come that were never seen.
const TEXTS: [&str; 4] =
    [include_str!("letter.txt"), include_str!("program.txt"), include_str!("call.txt"), include_str!("languages.txt")];

/// Rows of a text that are read at most: the reference interpreter takes some milliseconds for each row of a layer.
const ROWS_MAX: Tokens = Tokens(32);

/// Rows of its own that an expert is run on at most; of all rows it is half as many.
const EXPERT_ROWS: usize = 16;

/// By how much ranges are wider than what was seen. An integer of sixteen bits can spare one; values that are cut off
/// cost more.
const MARGIN: f32 = 2.0;

#[cfg(test)]
mod tests;
