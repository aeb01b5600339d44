//! The reader against `transformers`, and the kernels against the reader.

mod against_kernels;
mod against_transformers;
mod every_type;
mod hidden;
mod mutations;
mod random_blocks;
mod real_model;
mod refusals;
mod rewritten;

use super::{ExactReader, Rounding};
use crate::forward::{Activations, Pass, Segment};
use crate::kv::KvFormat;
use crate::{LoadOptions, Model};
use duet_kernels::crew::Scoped;
use duet_types::{TokenId, Tokens};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What `scripts/golden/tiny_models.py` wrote of a model.
#[derive(Deserialize)]
struct Golden {
    tokens: Vec<u32>,
    /// Of all rows; the logits are of some.
    argmax: Vec<usize>,
    rows: Vec<usize>,
    logits: Vec<Vec<f32>>,
    /// The context to ask for, where it matters.
    context: Option<u32>,
}

impl Golden {
    fn of(name: &str) -> Self {
        serde_json::from_slice(&std::fs::read(fixture(&format!("golden_{name}.json"))).unwrap()).unwrap()
    }

    /// A reader for its text.
    fn reader(&self, path: &Path) -> ExactReader {
        ExactReader::open_for(path, Rounding::None, self.context.map(Tokens)).unwrap()
    }

    fn tokens(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|&token| TokenId(token)).collect()
    }
}

/// What `scripts/golden/quant_models.py` wrote: one model in every tensor type.
#[derive(Deserialize)]
struct QuantModels {
    tokens: Vec<u32>,
    rows: Vec<usize>,
    models: BTreeMap<String, Vec<Vec<f32>>>,
}

impl QuantModels {
    fn read() -> Self {
        serde_json::from_slice(&std::fs::read(fixture("golden_quant_models.json")).unwrap()).unwrap()
    }

    fn of(&self, name: &str) -> Golden {
        let logits = self.models[name].clone();
        Golden { tokens: self.tokens.clone(), argmax: Vec::new(), rows: self.rows.clone(), logits, context: None }
    }
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn model(name: &str) -> PathBuf {
    fixture(&format!("golden_{name}.gguf"))
}

/// How far logits are from those that are expected.
#[derive(Clone, Copy, Debug)]
struct Difference {
    /// Root mean square of the difference over that of the expected.
    rms: f64,
    /// The same of single rows, and of these the one in the middle: what one row's accident does not move.
    median: f64,
    /// Share of rows with another best token.
    parted: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rms, median, parted } = self;
        write!(f, "rms {rms:.1e}, the middle row {median:.1e}, {:.1} % of best tokens differ", parted * 100.0)
    }
}

fn difference(logits: &[f32], expected: &[f32], vocabulary: usize) -> Difference {
    let (rows, expected_rows) = (logits.chunks_exact(vocabulary), expected.chunks_exact(vocabulary));
    assert_eq!(logits.len(), expected.len());
    let mut each: Vec<f64> = rows.clone().zip(expected_rows.clone()).map(|(a, b)| relative(a, b)).collect();
    each.sort_by(f64::total_cmp);
    let parted = rows.zip(expected_rows).filter(|(a, b)| best(a) != best(b)).count();
    let parted = parted as f64 / each.len() as f64;
    Difference { rms: relative(logits, expected), median: each[each.len() / 2], parted }
}

fn relative(logits: &[f32], expected: &[f32]) -> f64 {
    let error: f64 = logits.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    let total: f64 = expected.iter().map(|b| f64::from(*b).powi(2)).sum();
    (error / total).sqrt()
}

fn best(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

fn all_rows(tokens: &[TokenId]) -> Vec<usize> {
    (0..tokens.len()).collect()
}

fn load(path: &Path) -> Model {
    Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

/// The kernels' logits of all rows.
fn by_kernels(model: &Model, tokens: &[TokenId], kv: KvFormat) -> Vec<f32> {
    let crew = Scoped { threads: 2 };
    let kv = model.kv_pool(kv, Tokens(512)).table();
    let segment = Segment::new(kv, tokens.to_vec());
    let mut pass = Pass::new(model, Activations::new(model, tokens.len()), vec![segment]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &crew);
    let mut logits = Vec::new();
    model.logits(&mut pass, &all_rows(tokens), &mut logits, &crew);
    logits.truncate(tokens.len() * model.config().vocabulary);
    logits
}

/// The reader's logits of all rows.
fn by_reader(path: &Path, tokens: &[TokenId], rounding: Rounding) -> Vec<f32> {
    let reader = ExactReader::open(path, rounding).unwrap();
    reader.logits(tokens, &all_rows(tokens)).unwrap()
}
