//! The real model with drafts and without: the same answers, token for token, greedy and drawn, whatever is penalised.
//! `DUET_TEST_MODEL` is the path of a GGUF file; without it this is skipped.

use duet_engine::{
    Calibrate, Engine, EngineConfig, GenerateRequest, GenerationEvent, Method, SamplingParams, StopConditions, Usage,
    Verify,
};
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

const PROMPTS: [&str; 2] = [
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog near the river bank.",
    "Summarise: The harbour was closed on Monday after a storm damaged the northern pier. Ferries to the islands were \
     cancelled, and the harbour master said that the pier would stay closed until Friday. Fishing boats may use the \
     southern pier. The storm had damaged the pier last year, too, and repairs took two weeks.",
];

fn model() -> Option<Arc<Model>> {
    let path = duet_testing::path(Need::Model)?;
    Some(Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()))
}

fn engine(model: &Arc<Model>, folder: &Path, speculate: Method, verify: Verify, calibrate: Calibrate) -> Engine {
    let config = EngineConfig {
        context: Some(Tokens(1024)),
        kv_bytes: Some(Bytes(64 << 20)),
        spill_bytes: Some(Bytes(0)),
        profile_folder: Some(folder.to_owned()),
        speculate,
        verify,
        calibrate,
        ..EngineConfig::default()
    };
    Engine::start(Arc::clone(model), config).unwrap()
}

/// Greedy, drawn, and drawn with everything that changes logits.
fn samplings() -> [SamplingParams; 3] {
    let drawn = SamplingParams { temperature: 0.8, top_p: 0.95, seed: Some(11), ..SamplingParams::default() };
    let penalised = SamplingParams {
        repetition_penalty: 1.1,
        presence_penalty: 0.3,
        frequency_penalty: 0.2,
        logit_bias: vec![(TokenId(28), 2.0), (TokenId(30), -5.0)],
        top_k: 40,
        ..drawn.clone()
    };
    [SamplingParams::default(), drawn, penalised]
}

fn requests(model: &Model) -> Vec<GenerateRequest> {
    let mut requests = Vec::new();
    for prompt in PROMPTS {
        let text = model.template().render(&[ChatMessage::new("user", prompt)], None, Turn::Generate).unwrap();
        let prompt = model.tokenizer().encode_prompt(&text, SpecialTokens::Parse);
        for sampling in samplings() {
            let stop = vec!["lazy dog near the river bank. The quick".to_owned()];
            requests.push(GenerateRequest {
                prompt: prompt.clone(),
                sampling,
                stop: StopConditions { max_tokens: Some(Tokens(32)), stop, ..StopConditions::default() },
                ..GenerateRequest::default()
            });
        }
    }
    requests
}

fn answer(engine: &Engine, request: GenerateRequest) -> (Vec<TokenId>, String, Usage) {
    let mut generation = engine.submit(request).unwrap();
    let (mut tokens, mut text) = (Vec::new(), String::new());
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, text: piece, .. } => {
                tokens.push(token);
                text += &piece;
            }
            GenerationEvent::Finished { text: rest, usage, .. } => return (tokens, text + &rest, usage),
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
    panic!("a generation has an end");
}

#[test]
fn drafts_change_no_token() {
    let Some(model) = model() else { return };
    let profiles = tempfile::tempdir().unwrap();
    let plain = engine(&model, profiles.path(), Method::None, Verify::Paying, Calibrate::Off);
    let expected: Vec<_> = requests(&model).into_iter().map(|request| answer(&plain, request)).collect();
    drop(plain);
    let settings = [
        (Method::Sam, Verify::Paying, Calibrate::Off),
        (Method::CoordGen, Verify::All, Calibrate::Full),
        (Method::Duet, Verify::Paying, Calibrate::Context),
        (Method::Duet, Verify::All, Calibrate::Context),
    ];
    for (method, verify, calibrate) in settings {
        let drafting = engine(&model, profiles.path(), method, verify, calibrate);
        let mut accepted = Tokens::ZERO;
        for (request, (tokens, text, _)) in requests(&model).into_iter().zip(&expected) {
            let sampling = request.sampling.clone();
            let drafted = answer(&drafting, request);
            assert_eq!((&drafted.0, &drafted.1), (tokens, text), "{method} {verify:?} {sampling:?}");
            accepted += drafted.2.drafts.accepted;
        }
        // What pays is for a machine to say, and a busy one may say that nothing does.
        if verify == Verify::All {
            assert!(accepted > Tokens(20), "{method}: only {accepted} drafted tokens were right");
        }
    }
}
