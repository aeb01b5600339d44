//! SmolLM2 against llama.cpp: greedy continuations and perplexity (`scripts/golden/llama_cpp.py` made the references).
//!
//! The model is named by `DUET_TEST_MODEL`, the folder of `corpus.txt` by `DUET_WORKLOADS`; a test whose data is absent
//! says so and passes. Both programs round activations to eight bits, in their own ways, so where the two best tokens
//! are within that noise the choice may differ, and the texts then go apart. Every first difference must be such a tie.

use duet_kernels::crew::Scoped;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvFormat, KvTable};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn data(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        eprintln!("SKIPPED: {variable} is not set");
    }
    path
}

fn fixture<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A sequence and the buffers it runs in.
struct Run<'a> {
    model: &'a Model,
    activations: Option<Activations>,
    kv: Option<KvTable>,
    logits: Vec<f32>,
}

const ROWS: usize = 256;

impl<'a> Run<'a> {
    fn new(model: &'a Model) -> Self {
        let kv = model.kv_pool(KvFormat::F16, Tokens(4096)).table();
        Self { model, activations: Some(Activations::new(model, ROWS)), kv: Some(kv), logits: Vec::new() }
    }

    fn restart(&mut self) {
        self.kv.as_mut().unwrap().truncate(Tokens::ZERO);
    }

    /// Feeds tokens; leaves the logits of those rows of the last chunk that `rows` chooses.
    fn feed(&mut self, tokens: &[TokenId], rows: impl Fn(usize) -> bool) {
        let crew = Scoped { threads: 2 };
        for chunk in tokens.chunks(ROWS) {
            let segment = Segment::new(self.kv.take().unwrap(), chunk.to_vec());
            let mut pass = Pass::new(self.model, self.activations.take().unwrap(), vec![segment]).unwrap();
            self.model.run_span(&mut pass, 0..self.model.node_count(), &crew);
            let chosen: Vec<usize> = (0..chunk.len()).filter(|&row| rows(row)).collect();
            self.model.logits(&mut pass, &chosen, &mut self.logits, &crew);
            self.logits.truncate(chosen.len() * self.model.config().vocabulary);
            let (activations, mut tables) = pass.finish();
            (self.activations, self.kv) = (Some(activations), tables.pop());
        }
    }

    fn best(&self) -> TokenId {
        let last = &self.logits[self.logits.len() - self.model.config().vocabulary..];
        TokenId((0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b]).then(b.cmp(&a))).unwrap() as u32)
    }
}

fn load(path: &Path) -> Model {
    Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

#[derive(Deserialize)]
struct Greedy {
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    id: String,
    tokens: Vec<u32>,
    runs: BTreeMap<String, Continuation>,
}

#[derive(Deserialize)]
struct Continuation {
    tokens: Vec<u32>,
    /// Best logit, second token, second logit.
    top: Vec<(f64, u32, f64)>,
}

/// Logits of the two programs differ by about 0.15 on average; a tie is a margin that this noise can turn. Measured:
/// 0.290.
const TIE: f64 = 0.3;

/// Continuations that agree to the last token, at least, of 50. Measured: 18.
const AGREE: usize = 15;

#[test]
fn greedy_continuations_part_only_at_ties() {
    let Some(path) = data("DUET_TEST_MODEL") else { return };
    let golden: Greedy = fixture("golden_smollm2_greedy.json");
    let model = load(&path);
    let mut run = Run::new(&model);
    let (mut agree, mut steps, mut margin_max, mut failures) = (0, 0, 0.0_f64, Vec::new());
    for prompt in &golden.prompts {
        let expected = &prompt.runs["q4_1"];
        run.restart();
        let tokens: Vec<TokenId> = prompt.tokens.iter().map(|&token| TokenId(token)).collect();
        let rows = (tokens.len() - 1) % ROWS;
        run.feed(&tokens, |row| row == rows);
        let mut same = 0;
        for &token in &expected.tokens {
            if run.best() != TokenId(token) {
                break;
            }
            same += 1;
            run.feed(&[TokenId(token)], |_| true);
        }
        steps += same;
        if same == expected.tokens.len() {
            agree += 1;
            continue;
        }
        let (best, second, second_logit) = expected.top[same];
        let margin = best - second_logit;
        margin_max = margin_max.max(margin);
        let chose = run.best();
        eprintln!(
            "{}: parts at step {same}, margin {margin:.3}, {}",
            prompt.id,
            if chose.0 == second { "second" } else { "other" }
        );
        if margin > TIE {
            failures.push(prompt.id.clone());
        }
    }
    eprintln!("{agree} of {} continuations agree for all 32 tokens; {steps} steps agree in all", golden.prompts.len());
    eprintln!("the largest margin at which one parts: {margin_max:.3}");
    assert!(failures.is_empty(), "these part where llama.cpp was sure: {failures:?}");
    assert!(agree >= AGREE, "only {agree} continuations agree for all 32 tokens");
}

#[derive(Deserialize)]
struct Perplexity {
    models: BTreeMap<String, ModelPerplexity>,
}

#[derive(Deserialize)]
struct ModelPerplexity {
    after_chunks: BTreeMap<String, f64>,
}

/// As llama.cpp's tool does it: windows of 512 from the start, the second half scored.
fn perplexity(model: &Model, tokens: &[TokenId], windows: usize) -> f64 {
    const WINDOW: usize = 512;
    let vocabulary = model.config().vocabulary;
    let mut run = Run::new(model);
    let (mut total, mut count) = (0.0, 0);
    for window in tokens.chunks_exact(WINDOW).take(windows) {
        run.restart();
        run.feed(&window[..ROWS], |_| false);
        run.feed(&window[ROWS..], |row| row < WINDOW - ROWS - 1);
        for (row, next) in run.logits.chunks_exact(vocabulary).zip(&window[ROWS + 1..]) {
            let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let sum: f64 = row.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
            total -= f64::from(row[next.0 as usize]) - largest - sum.ln();
            count += 1;
        }
    }
    (total / f64::from(count)).exp()
}

/// Of perplexity over 64 windows, relative. Measured: 0.0002 (22.1777 against 22.1736).
const PERPLEXITY: f64 = 0.001;

#[test]
fn perplexity_is_llama_cpps() {
    let (Some(path), Some(workloads)) = (data("DUET_TEST_MODEL"), data("DUET_WORKLOADS")) else { return };
    let golden: Perplexity = fixture("golden_smollm2_perplexity.json");
    let windows = std::env::var("DUET_PERPLEXITY_WINDOWS").map_or("64".to_owned(), |windows| windows);
    let expected = golden.models["q4_1"].after_chunks[&windows];
    let model = load(&path);
    let text = std::fs::read_to_string(workloads.join("corpus.txt")).unwrap();
    let tokens = model.tokenizer().encode(&text, SpecialTokens::AsText);
    let measured = perplexity(&model, &tokens, windows.parse().unwrap());
    eprintln!("perplexity over {windows} windows: {measured:.4}, llama.cpp {expected:.4}");
    assert!((measured / expected - 1.0).abs() < PERPLEXITY, "{measured} against {expected}");
}
