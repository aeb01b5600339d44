//! The best logits of rows that are sought before a span is run come along with it, and are those that the head alone finds; where
//! they do not, the head is asked for them.

mod common;

use common::{adapter, fixture, loaded};
use duet_gpu::GpuModel;
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, BestOfRow, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_types::{TokenId, Tokens};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A head that counts how often it is asked.
#[derive(Debug)]
struct Asked<'a> {
    gpu: &'a GpuModel,
    times: AtomicUsize,
}

impl TokenWise for Asked<'_> {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.gpu.qkv(layer, residual, qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.gpu.feed_forward(layer, attended, residual, fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.gpu.head(residual, logits)
    }

    fn head_best(&self, residual: &[f32], count: usize) -> Result<Option<Vec<BestOfRow>>, NotRun> {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.gpu.head_best(residual, count)
    }
}

const CREW: Scoped = Scoped { threads: 2 };

/// What is found of some rows of a prompt, and how often the head was asked. Its last nodes are run by themselves.
fn found(gpu: &GpuModel, model: &Model, (of_prompt, rows): (u32, &[usize]), sought: bool) -> (Vec<BestOfRow>, usize) {
    const COUNT: usize = 4;
    let table = model.kv_pool(KvFormat::Int8, Tokens(512)).table();
    let segment = Segment::new(table, (5..5 + of_prompt).map(TokenId).collect());
    let mut pass = Pass::new(model, Activations::new(model, of_prompt as usize), vec![segment]).unwrap();
    let nodes = model.nodes();
    let (first, last) = nodes.split_at(nodes.len() - 2);
    if sought {
        pass.seek_best(rows, COUNT);
    }
    model.run_span_on(gpu, &mut pass, first, &CREW).unwrap();
    model.run_span_on(gpu, &mut pass, last, &CREW).unwrap();
    let asked = Asked { gpu, times: AtomicUsize::new(0) };
    let best = model.best_on(&asked, &mut pass, rows, COUNT).unwrap().unwrap();
    (best, asked.times.into_inner())
}

#[test]
fn what_is_sought_comes_with_the_span() {
    let Some(adapter) = adapter() else { return };
    for name in ["golden_llama.gguf", "golden_qwen2.gguf"] {
        let model = loaded(&fixture(name));
        let gpu = GpuModel::new(Arc::clone(&model), &adapter).unwrap();
        let all: Vec<usize> = (0..20).collect();
        // One row, the first ones, some, a prompt's last; and more than the head takes together.
        for (of_prompt, rows, asked) in
            [(1, &all[..1], 0), (5, &all[..5], 0), (20, &[2, 3, 11], 0), (90, &[89], 0), (20, &all[..], 1)]
        {
            let (apart, times) = found(&gpu, &model, (of_prompt, rows), false);
            assert_eq!(times, 1);
            let (best, times) = found(&gpu, &model, (of_prompt, rows), true);
            assert_eq!(times, asked, "{name}, {} rows", rows.len());
            assert_eq!(best, apart, "{name}, {} rows", rows.len());
        }
    }
}
