//! The kernels of a real model against its reader, where `DUET_TEST_MODEL` names its file.
//!
//! A row of thirty layers has a hundred thousand rounded values, of which some turn in every row, and more with each layer
//! after. So the reader also takes each layer's rows from the kernels, and what that layer adds to them is compared, for
//! all layers but the last.

use super::{ExactReader, Rounding, all_rows, by_kernels, difference, load, relative};
use crate::Model;
use crate::exact::rows::Rows;
use crate::forward::{Activations, Node, NotRun, Pass, Segment, TokenWise};
use crate::kv::KvFormat;
use crate::tokenizer::SpecialTokens;
use duet_kernels::crew::Scoped;
use duet_types::{TokenId, Tokens};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// Of the root mean square over all layers. Measured of SmolLM2-135M-Instruct in Q4_1: 3.4e-2 with keys and values in half
/// precision, 4.8e-2 in eight bits.
const ALL_LAYERS: [(KvFormat, f64); 2] = [(KvFormat::F16, 0.06), (KvFormat::Int8, 0.09)];

/// Of the share of rows whose best token differs. Measured: 3 and 1 of 64.
const PARTED: f64 = 0.1;

/// Of what a layer adds to a row, in the middle of all rows and layers. Measured: 5.0e-7.
const ROW_OF_A_LAYER: f64 = 1e-6;

/// The same of all rows of a layer together, in the worst layer. Measured: 4.7e-3.
const WORST_LAYER: f64 = 1e-2;

const TEXT: &str = "The old lighthouse keeper had counted ships for forty years. In spring the fishing boats came \
    first, then the ferries; in autumn the order was the other way round. One evening a ship came by that was in none \
    of his books, and its lamp answered his own, three long and one short, as nobody had done since the war.";

fn path() -> Option<PathBuf> {
    let path = std::env::var_os("DUET_TEST_MODEL").map(PathBuf::from);
    if path.is_none() {
        eprintln!("SKIPPED: DUET_TEST_MODEL is not set");
    }
    path
}

fn text(model: &Model) -> Vec<TokenId> {
    let mut tokens = model.tokenizer().encode(TEXT, SpecialTokens::AsText);
    tokens.truncate(64);
    tokens
}

#[test]
fn all_layers_together() {
    let Some(path) = path() else { return };
    let model = load(&path);
    let tokens = text(&model);
    for (kv, tolerance) in ALL_LAYERS {
        let reader = ExactReader::open(&path, Rounding::AsKernels { kv }).unwrap();
        let expected = reader.logits(&tokens, &all_rows(&tokens)).unwrap();
        let found = difference(&by_kernels(&model, &tokens, kv), &expected, model.blueprint().vocabulary);
        eprintln!("{kv:?}: {found}");
        assert!(found.rms < tolerance && found.parted < PARTED, "{kv:?}: {found}");
    }
}

#[test]
fn each_layer_for_itself() {
    let Some(path) = path() else { return };
    let model = load(&path);
    let kv = KvFormat::F16;
    let streams = streams(&model, &text(&model), kv);
    let reader = ExactReader::open(&path, Rounding::AsKernels { kv }).unwrap();
    let tensors = reader.tensors();
    let (mut rows, mut layers) = (Vec::new(), Vec::new());
    for (layer, pair) in streams.windows(2).enumerate() {
        let mut read = pair[0].clone();
        reader.attend(&tensors, layer, &mut read, &mut BTreeMap::new()).unwrap();
        reader.feed(&tensors, layer, &mut read).unwrap();
        let [found, expected] = [&pair[1], &read].map(|after| addends(after, &pair[0]));
        rows.extend(found.each().zip(expected.each()).map(|(a, b)| relative(a, b)));
        layers.push(relative(&found.into_values(), &expected.into_values()));
    }
    rows.sort_by(f64::total_cmp);
    let (median, worst) = (rows[rows.len() / 2], layers.iter().copied().fold(0.0, f64::max));
    eprintln!("{} layers: the middle row {median:.1e}, the worst layer {worst:.1e}", layers.len());
    assert!(median < ROW_OF_A_LAYER, "the middle row {median:.1e}");
    assert!(worst < WORST_LAYER, "the worst layer {worst:.1e}");
}

fn addends(after: &Rows, before: &Rows) -> Rows {
    let mut addends = before.clone();
    addends.each_mut().flatten().for_each(|x| *x = -*x);
    addends.add(after);
    addends
}

/// The residual stream of the kernels before each layer.
fn streams(model: &Model, tokens: &[TokenId], kv: KvFormat) -> Vec<Rows> {
    let crew = Scoped { threads: 2 };
    let segment = Segment::new(model.kv_pool(kv, Tokens(512)).table(), tokens.to_vec());
    let mut pass = Pass::new(model, Activations::new(model, tokens.len()), vec![segment]).unwrap();
    let mut streams = Vec::new();
    for node in model.nodes() {
        if let Node::Qkv { .. } = node {
            let listener = Listener::default();
            let inputs = model.inputs_of(&mut pass, node).unwrap();
            inputs.run_on(&listener, 0..tokens.len()).unwrap();
            streams.push(Rows::new(model.blueprint().hidden, listener.heard.into_inner().unwrap()));
        }
        model.run_node(&mut pass, node, 0..tokens.len(), &crew);
    }
    streams
}

/// A device that computes nothing and keeps what it was given.
#[derive(Debug, Default)]
struct Listener {
    heard: Mutex<Vec<f32>>,
}

impl TokenWise for Listener {
    fn qkv(&self, _layer: usize, residual: &[f32], _qkv: &mut [f32]) -> Result<(), NotRun> {
        *self.heard.lock().unwrap() = residual.to_vec();
        Ok(())
    }

    fn feed_forward(&self, _: usize, _: &[f32], _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported("only projections are listened to".to_owned()))
    }

    fn head(&self, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported("only projections are listened to".to_owned()))
    }
}
