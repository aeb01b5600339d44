//! A GPU that brings back the best tokens of rows in place of whole ones: its answers are those of the cores, and who needs whole
//! rows has them.

use duet_engine::{
    Device, Engine, EngineConfig, Fallback, GenerateRequest, GenerationEvent, Method, SamplingParams, StopConditions,
};
use duet_gpu::{Adapters, Fusing, GpuModel};
use duet_model::forward::{BestOfRow, Node, NotRun, SpanRows, SpanWise, TokenWise};
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Bytes, Class, RequestId, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");

/// A GPU, and how often it was asked for whole rows and for the best of rows, or brought these along with a span.
#[derive(Debug)]
struct Counting {
    gpu: Arc<GpuModel>,
    whole: AtomicUsize,
    best: AtomicUsize,
    along: AtomicUsize,
}

impl Counting {
    /// Whole rows, best ones, and best ones along with a span since this was last asked.
    fn take(&self) -> [usize; 3] {
        [&self.whole, &self.best, &self.along].map(|count| count.swap(0, Ordering::Relaxed))
    }
}

impl TokenWise for Counting {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.gpu.qkv(layer, residual, qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.gpu.feed_forward(layer, attended, residual, fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.whole.fetch_add(1, Ordering::Relaxed);
        self.gpu.head(residual, logits)
    }

    fn head_best(&self, residual: &[f32], count: usize) -> Result<Option<Vec<BestOfRow>>, NotRun> {
        self.best.fetch_add(1, Ordering::Relaxed);
        self.gpu.head_best(residual, count)
    }
}

impl SpanWise for Counting {
    fn run_span(&self, nodes: &[Node], rows: &mut SpanRows<'_>) -> Result<(), NotRun> {
        self.gpu.run_span(nodes, rows)?;
        if rows.sought.as_ref().is_some_and(|sought| sought.found.is_some()) {
            self.along.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn copies_room(&self) -> Option<Bytes> {
        self.gpu.copies_room()
    }

    fn drop_copy(&self, request: RequestId) {
        self.gpu.drop_copy(request);
    }
}

fn gpu(model: &Arc<Model>) -> Option<Arc<Counting>> {
    let found = Adapters::look();
    let name = std::env::var(Need::Gpu.variable()).unwrap_or_else(|_| "gpu:0".to_owned());
    match found.named(&name) {
        Ok(adapter) => {
            let gpu = Arc::new(GpuModel::new(Arc::clone(model), adapter).unwrap());
            Some(Arc::new(Counting {
                gpu,
                whole: AtomicUsize::new(0),
                best: AtomicUsize::new(0),
                along: AtomicUsize::new(0),
            }))
        }
        Err(error) => {
            duet_testing::skip(Need::Gpu, error);
            None
        }
    }
}

/// An engine whose GPU does all that it takes, or one without a GPU.
fn engine(model: &Arc<Model>, gpu: Option<&Arc<Counting>>, speculate: Method) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let device = |gpu: &Arc<Counting>| {
        let spans = Some(Arc::clone(gpu) as _);
        Device { spans, ..Device::new("igpu", "1", Arc::clone(gpu) as _) }
    };
    let config = EngineConfig {
        devices: gpu.map(device).into_iter().collect(),
        fallback: Fallback::Never,
        threads: Some(1),
        speculate,
        profile_folder: Some(folder.path().to_owned()),
        ..EngineConfig::default()
    };
    if gpu.is_some() {
        drop(Engine::start(Arc::clone(model), config.clone()).unwrap());
        duet_testing::prefer_devices(folder.path());
    }
    Engine::start(Arc::clone(model), config).unwrap()
}

fn request(first: u32, sampling: SamplingParams) -> GenerateRequest {
    GenerateRequest {
        prompt: (0..40).map(|i| TokenId((first + i % 8 * 37) % 250 + 3)).collect(),
        sampling: SamplingParams { seed: Some(7), ..sampling },
        stop: StopConditions { max_tokens: Some(Tokens(24)), ignore_eos: true, ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    }
}

fn answers(engine: &Engine, requests: Vec<GenerateRequest>) -> Vec<Vec<TokenId>> {
    let generations: Vec<_> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    let tokens = |mut generation: duet_engine::Generation| {
        let mut tokens = Vec::new();
        while let Some(event) = generation.next_blocking() {
            match event {
                GenerationEvent::Token { token, .. } => tokens.push(token),
                GenerationEvent::Failed(error) => panic!("a request ended: {error}"),
                _ => {}
            }
        }
        tokens
    };
    generations.into_iter().map(tokens).collect()
}

#[test]
fn answers_of_the_best_tokens_are_those_of_the_cores() {
    let model = Arc::new(Model::load(Path::new(MODEL), &LoadOptions::default(), &mut |_| {}).unwrap());
    let Some(gpu) = gpu(&model) else { return };
    if !gpu.gpu.fusing().is_some_and(Fusing::is_exact) {
        return;
    }
    let drawn = || SamplingParams { temperature: 0.9, top_k: 20, top_p: 0.9, ..SamplingParams::default() };
    let greedy = SamplingParams::default;
    let penalised = || SamplingParams { frequency_penalty: 0.8, ..greedy() };
    for method in [Method::None, Method::Duet] {
        let (here, there) = (engine(&model, None, method), engine(&model, Some(&gpu), method));
        for (name, kinds, needs_whole) in [
            ("greedy", vec![greedy()], false),
            ("drawn of twenty", vec![drawn()], false),
            ("of more than a GPU looks for", vec![SamplingParams { top_k: 65, ..drawn() }], true),
            ("penalised", vec![penalised()], true),
            ("a nucleus", vec![SamplingParams { top_k: 0, ..drawn() }], true),
            ("side by side", vec![greedy(), drawn()], false),
            ("side by side with a penalty", vec![greedy(), penalised(), drawn()], true),
        ] {
            let requests = || (3..).zip(kinds.clone()).map(|(first, kind)| request(first * 11, kind)).collect();
            gpu.take();
            let found = answers(&there, requests());
            let [whole, best, along] = gpu.take();
            assert_eq!(found, answers(&here, requests()), "{name}, {method}");
            assert!(found.iter().all(|tokens| tokens.len() == 24), "{name}, {method}");
            let counts = format!("{name}, {method}: {whole} whole, {best} best, {along} along");
            assert_eq!(whole > 0, needs_whole, "{counts}");
            assert!(needs_whole || along > 0, "{counts}: none came with a span");
            // Drafts may have more rows than come along.
            let has_drafts = !matches!(method, Method::None);
            assert!(needs_whole || has_drafts || best == 0, "{counts}: the head ran by itself");
        }
    }
}
