//! Between which numbers a model's values lie, for devices whose graphs compute in integers.
//!
//! The model reads a text with its own kernels, and a device that runs nothing writes down what each block is given
//! (see [`Recorder`]). The reference interpreter then runs the blocks on that, and the ranges of all values between are
//! widened by a margin: what lies outside would be cut off. (NPUMoE §3.3 and CoordGen §4 take their scales offline, too)

use duet_graphs::{Block, CalibrationError, Range, RangeError, Ranges, calibrate};
use duet_kernels::crew::Solo;
use duet_model::Model;
use duet_model::forward::{Activations, NotRun, Pass, PassError, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_model::tokenizer::SpecialTokens;
use duet_runtimes::Digest;
use duet_types::{TokenId, Tokens};
use std::sync::{Mutex, PoisonError};

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

/// What a model's blocks are given while it reads a text: rows, one behind the other.
#[derive(Debug, Default)]
pub struct Seen {
    rows: usize,
    /// For each layer.
    qkv: Vec<Vec<f32>>,
    /// For each layer: attended, residual.
    feed_forward: Vec<[Vec<f32>; 2]>,
    head: Vec<f32>,
}

impl Seen {
    /// Lets the model read a text that is chosen for it, on this thread.
    ///
    /// # Errors
    /// If the model has no memory to read it.
    pub fn of(model: &Model) -> Result<Self, CalibrateError> {
        Self::while_reading(model, TEXT, ROWS_MAX)
    }

    /// What the ranges follow from, beside the model.
    pub(crate) fn settings() -> Digest {
        Digest::of(format!("{TEXT:?} {ROWS_MAX} {MARGIN}").as_bytes())
    }

    /// The same of the first tokens of another text.
    ///
    /// # Errors
    /// If the model has no memory to read it.
    pub fn while_reading(model: &Model, text: &str, rows_max: Tokens) -> Result<Self, CalibrateError> {
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
        let recorder = Recorder::default();
        for node in model.nodes() {
            // It has run nothing, only looked.
            if model.run_node_on(&recorder, &mut pass, node, 0..rows, &Solo).is_err() {
                model.run_node(&mut pass, node, 0..rows, &Solo);
            }
        }
        let all: Vec<usize> = (0..rows).collect();
        let _ = model.logits_on(&recorder, &mut pass, &all, &mut Vec::new());
        Ok(Self { rows, ..recorder.seen.into_inner().unwrap_or_else(PoisonError::into_inner) })
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
        [&self.qkv[layer]]
    }

    /// What layer `layer`'s second block was given, in the order of its ports.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn feed_forward_inputs(&self, layer: usize) -> [&[f32]; 2] {
        let [attended, residual] = &self.feed_forward[layer];
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

    /// The ranges of layer `layer`'s second block.
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

    fn ranges(&self, block: &Block, inputs: &[&[f32]]) -> Result<Ranges, CalibrateError> {
        let seen = calibrate(block, self.rows(), inputs)?;
        let wider = |range: &Range| Range::new(MARGIN * range.least(), MARGIN * range.most());
        Ok(Ranges::new(block, seen.values().iter().map(wider).collect())?)
    }
}

/// A device that runs nothing and writes down what it is given, layer by layer.
#[derive(Debug, Default)]
struct Recorder {
    seen: Mutex<Seen>,
}

impl Recorder {
    fn note(&self, note: impl FnOnce(&mut Seen)) -> Result<(), NotRun> {
        note(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        Err(NotRun::Unsupported("it only looks".to_owned()))
    }
}

impl TokenWise for Recorder {
    fn qkv(&self, _layer: usize, residual: &[f32], _qkv: &mut [f32]) -> Result<(), NotRun> {
        self.note(|seen| seen.qkv.push(residual.to_vec()))
    }

    fn feed_forward(&self, _layer: usize, attended: &[f32], residual: &[f32], _fed: &mut [f32]) -> Result<(), NotRun> {
        self.note(|seen| seen.feed_forward.push([attended.to_vec(), residual.to_vec()]))
    }

    fn head(&self, residual: &[f32], _logits: &mut [f32]) -> Result<(), NotRun> {
        self.note(|seen| seen.head = residual.to_vec())
    }
}

/// Prose, code, figures and other scripts, so that few values come that were never seen.
const TEXT: &str = include_str!("calibration.txt");

/// Rows that are read at most: the reference interpreter takes some milliseconds for each row of a layer.
const ROWS_MAX: Tokens = Tokens(64);

/// By how much ranges are wider than what was seen. An integer of sixteen bits can spare one; values that are cut off
/// cost more.
const MARGIN: f32 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::layer_blocks;
    use duet_graphs::WeightRule;
    use duet_model::LoadOptions;
    use std::path::Path;

    #[test]
    fn every_block_is_seen_once_and_its_ranges_hold_what_it_was_given() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let (seen, layers) = (Seen::of(&model).unwrap(), model.config().layers);
        assert_eq!((seen.qkv.len(), seen.feed_forward.len()), (layers, layers));
        assert!(seen.rows > 1);
        for layer in 0..layers {
            let blocks = layer_blocks(&model, layer, WeightRule::PerOutput).unwrap();
            let ranges = seen.qkv(layer, &blocks.qkv).unwrap();
            let residual = Range::of(&seen.qkv[layer]);
            assert!(residual.most() > 0.0 && residual.least() < 0.0);
            assert_eq!(ranges.values()[0].most(), MARGIN * residual.most());
            assert_eq!(seen.feed_forward(layer, &blocks.feed_forward).unwrap().values().len(), 11);
        }
        assert_eq!(seen.head.len(), seen.rows * seen.qkv[0].len() / seen.rows);
    }
}
