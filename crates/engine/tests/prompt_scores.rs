//! Log probabilities of prompts, against the logits of one plain pass over the whole prompt: the same to the bit, in chunks
//! of any size, alone and beside other work. And against the reader in plain floats, to which they are near.

use duet_engine::{
    Engine, EngineConfig, GenerateRequest, GenerationEvent, PromptToken, SamplingParams, StopConditions, TokenLogprobs,
};
use duet_kernels::crew::Solo;
use duet_model::exact::{ExactReader, Rounding};
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_types::{Bytes, Class, TokenId, Tokens};
use std::path::PathBuf;
use std::sync::Arc;

/// Dense and of experts, with biases and with windows.
const MODELS: [&str; 4] = ["llama", "qwen2", "gemma3", "olmoe"];
const ALTERNATIVES: u8 = 5;

fn path(name: &str) -> PathBuf {
    format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR")).into()
}

fn load(name: &str) -> Arc<Model> {
    Arc::new(Model::load(&path(name), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn text(count: usize, seed: usize) -> Vec<TokenId> {
    (0..count).map(|i| TokenId(((i * 37 + seed * 101 + i * i % 11) % 250) as u32)).collect()
}

fn request(prompt: &[TokenId], max_tokens: u32, class: Class) -> GenerateRequest {
    let max_tokens = Some(Tokens(max_tokens));
    GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams { temperature: 1.5, seed: Some(1), ..SamplingParams::default() },
        stop: StopConditions { max_tokens, ignore_eos: true, ..StopConditions::default() },
        class,
        prompt_logprobs: Some(ALTERNATIVES),
        ..GenerateRequest::default()
    }
}

/// What is told of a prompt, and how many tokens follow.
fn scores(engine: &Engine, request: GenerateRequest) -> (Vec<PromptToken>, usize) {
    let mut generation = engine.submit(request).unwrap();
    let (mut told, mut generated) = (Vec::new(), 0);
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Prompt(tokens) => {
                assert_eq!(generated, 0, "the prompt comes first");
                told.extend(tokens);
            }
            GenerationEvent::Token { .. } => generated += 1,
            GenerationEvent::Finished { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    (told, generated)
}

/// Of one row, in double precision.
fn logprobs(logits: &[f32], token: TokenId) -> TokenLogprobs {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
    let of = |token: TokenId| (f64::from(logits[token.0 as usize] - max) - sum.ln()) as f32;
    let mut tokens: Vec<TokenId> = (0..logits.len() as u32).map(TokenId).collect();
    tokens.sort_by(|a, b| logits[b.0 as usize].total_cmp(&logits[a.0 as usize]).then(a.cmp(b)));
    tokens.truncate(ALTERNATIVES.into());
    TokenLogprobs { chosen: of(token), top: tokens.into_iter().map(|token| (token, of(token))).collect() }
}

/// All rows of a text in one pass.
fn plain_logits(model: &Model, prompt: &[TokenId]) -> Vec<f32> {
    let kv = model.kv_pool(KvFormat::default(), Tokens(1024)).table();
    let activations = Activations::new(model, prompt.len());
    let mut pass = Pass::new(model, activations, vec![Segment::new(kv, prompt.to_vec())]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &Solo);
    let mut logits = Vec::new();
    model.logits(&mut pass, &(0..prompt.len()).collect::<Vec<_>>(), &mut logits, &Solo);
    logits.truncate(prompt.len() * model.config().vocabulary);
    logits
}

/// How far log probabilities are from those of some logits at most, and of how many tokens others are the likeliest.
fn distance(told: &[PromptToken], logits: &[f32], prompt: &[TokenId]) -> (f32, usize) {
    let (mut farthest, mut others) = (0.0_f32, 0);
    assert_eq!(told.iter().map(|told| told.token).collect::<Vec<_>>(), prompt);
    assert_eq!(told[0].logprobs, None, "before the first token there is nothing");
    let rows = logits.chunks_exact(logits.len() / prompt.len());
    for (told, logits) in told[1..].iter().zip(rows) {
        let (told, expected) = (told.logprobs.as_ref().unwrap(), logprobs(logits, told.token));
        farthest = farthest.max((told.chosen - expected.chosen).abs());
        let tokens = |logprobs: &TokenLogprobs| logprobs.top.iter().map(|(token, _)| *token).collect::<Vec<_>>();
        others += usize::from(tokens(told) != tokens(&expected));
    }
    (farthest, others)
}

#[test]
fn they_are_those_of_one_plain_pass_in_chunks_of_any_size_and_beside_other_work() {
    for name in MODELS {
        let model = load(name);
        let prompts: Vec<Vec<TokenId>> = [1, 2, 33, 120].iter().map(|&count| text(count, count)).collect();
        let mut first = Vec::new();
        for (chunk, pages) in [(256, 64), (7, 64), (40, 3)] {
            let page = model.kv_pool(KvFormat::default(), Tokens(64)).page_bytes();
            let config = EngineConfig {
                context: Some(Tokens(128)),
                chunk: Tokens(chunk),
                kv_bytes: Some(Bytes(page.0 * pages)),
                ..EngineConfig::default()
            };
            let engine = Engine::start(Arc::clone(&model), config).unwrap();
            let told: Vec<Vec<PromptToken>> = std::thread::scope(|scope| {
                let clients = prompts.iter().enumerate().map(|(index, prompt)| {
                    let class = if index % 2 == 0 { Class::Reactive } else { Class::Proactive };
                    let (engine, said) = (&engine, [0, 3][index / 2]);
                    scope.spawn(move || {
                        let (told, generated) = scores(engine, request(prompt, said, class));
                        assert_eq!(generated, said as usize);
                        told
                    })
                });
                let clients: Vec<_> = clients.collect();
                clients.into_iter().map(|client| client.join().unwrap()).collect()
            });
            for (told, prompt) in told.iter().zip(&prompts) {
                let (farthest, others) = distance(told, &plain_logits(&model, prompt), prompt);
                // What is left is that of an exponential in single precision.
                assert!(farthest < 2e-5 && others == 0, "{name}, chunks of {chunk}: {farthest}, {others}");
            }
            if first.is_empty() {
                first.clone_from(&told);
            }
            assert_eq!(told, first, "{name}: to the bit, in chunks of {chunk}");
        }
    }
}

/// Of the dense ones: where two experts are as good, the reader may choose the other.
#[test]
fn they_are_near_those_of_the_file_in_plain_floats() {
    for name in ["llama", "qwen2", "gemma3"] {
        // The reader does not imitate all that is rounded beside other formats.
        let config = EngineConfig { kv_format: KvFormat::F16, ..EngineConfig::default() };
        let engine = Engine::start(load(name), config).unwrap();
        let prompt = text(60, 5);
        let (told, _) = scores(&engine, request(&prompt, 0, Class::Reactive));
        let reader = ExactReader::open(&path(name), Rounding::AsKernels { kv: KvFormat::F16 }).unwrap();
        let logits = reader.logits(&prompt, &(0..prompt.len()).collect::<Vec<_>>()).unwrap();
        let (farthest, _) = distance(&told, &logits, &prompt);
        eprintln!("{name}: {farthest}");
        // The models are of floats, so that only keys and values are rounded.
        assert!(farthest < 0.001, "{name}: {farthest}");
    }
}
