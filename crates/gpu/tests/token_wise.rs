//! The nodes of whole models on a GPU, beside the CPU's kernels: the same to the bit, or as near as an `fma` that rounds twice
//! lets them be.

mod common;

use common::{adapter, fixture, loaded};
use duet_gpu::{Fusing, GpuModel};
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_testing::Need;
use duet_types::{TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

/// Compares all logits of a few prompts, of one row, of some and of more than a tile.
fn check(path: &Path) {
    let Some(adapter) = adapter() else { return };
    let model = loaded(path);
    let gpu = GpuModel::new(Arc::clone(&model), &adapter).unwrap();
    for rows in [1, 3, 21] {
        let tokens: Vec<_> = (5..5 + rows).map(TokenId).collect();
        let (here, there) = (logits(&model, &tokens, None).unwrap(), logits(&model, &tokens, Some(&gpu)).unwrap());
        if gpu.fusing().is_some_and(Fusing::is_exact) {
            assert!(here.iter().zip(&there).all(|(a, b)| a.to_bits() == b.to_bits()), "{rows} rows: not to the bit");
        }
        let far = here.iter().zip(&there).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let largest = here.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        assert!(far <= 0.03 * largest, "{rows} rows: logits up to {largest} differ by up to {far}");
        let vocabulary = model.config().vocabulary;
        for (here, there) in here.chunks_exact(vocabulary).zip(there.chunks_exact(vocabulary)) {
            assert_eq!(best(here), best(there), "{rows} rows");
        }
    }
}

fn best(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
}

/// What comes back in place of whole rows is what whole rows hold, of one submission and of several.
#[test]
fn the_best_logits_are_those_of_whole_rows() {
    let Some(adapter) = adapter() else { return };
    let model = loaded(&fixture("golden_llama.gguf"));
    let gpu = GpuModel::new(Arc::clone(&model), &adapter).unwrap();
    let (hidden, vocabulary) = (model.blueprint().hidden, model.config().vocabulary);
    for rows in [1, 21] {
        let residual: Vec<f32> = (0..rows * hidden).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let mut logits = vec![0.0; rows * vocabulary];
        gpu.head(&residual, &mut logits).unwrap();
        for count in [1, 4, 64] {
            let before = gpu.read_bytes();
            let found = gpu.head_best(&residual, count).unwrap().unwrap();
            assert_eq!((gpu.read_bytes() - before).0 as usize, rows * count * 8);
            assert_eq!(found.len(), rows);
            for (logits, found) in logits.chunks_exact(vocabulary).zip(found) {
                let mut all: Vec<_> = (0..).map(TokenId).zip(logits.iter().copied()).collect();
                all.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap());
                assert_eq!(found, all[..count]);
            }
        }
        for count in [0, 65] {
            assert_eq!(gpu.head_best(&residual, count), Ok(None));
        }
    }
}

#[test]
fn a_llama() {
    check(&fixture("golden_llama.gguf"));
}

#[test]
fn a_qwen_with_biases() {
    check(&fixture("golden_qwen2.gguf"));
}

#[test]
fn a_gemma_with_norms_behind() {
    check(&fixture("golden_gemma3.gguf"));
}

#[test]
fn the_default_model() {
    if let Some(path) = duet_testing::path(Need::Model) {
        check(&path);
    }
}

/// The logits of all rows of a prompt whose token-wise nodes run on a device, or nowhere but here.
fn logits(model: &Model, tokens: &[TokenId], device: Option<&dyn TokenWise>) -> Result<Vec<f32>, NotRun> {
    let table = model.kv_pool(KvFormat::F16, Tokens(512)).table();
    let segment = Segment::new(table, tokens.to_vec());
    let mut pass = Pass::new(model, Activations::new(model, tokens.len()), vec![segment]).unwrap();
    let (crew, all) = (Scoped { threads: 2 }, 0..tokens.len());
    let mut logits = Vec::new();
    let Some(device) = device else {
        model.run_span(&mut pass, 0..model.node_count(), &crew);
        model.logits(&mut pass, &all.collect::<Vec<_>>(), &mut logits, &crew);
        return Ok(logits[..tokens.len() * model.config().vocabulary].to_vec());
    };
    for node in model.nodes() {
        model.run_node_on(device, &mut pass, node, all.clone(), &crew)?;
    }
    model.logits_on(device, &mut pass, &all.collect::<Vec<_>>(), &mut logits)?;
    Ok(logits)
}
