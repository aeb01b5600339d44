//! The real model with drafts and without: the same answers, token for token, greedy and drawn, whatever is penalised.
//! `DUET_TEST_MODEL` is the path of a GGUF file; without it this is skipped.

mod real_model;

use duet_engine::{Calibrate, Engine, EngineConfig, GenerateRequest, Method, SamplingParams, StopConditions, Verify};
use duet_model::Model;
use duet_types::{TokenId, Tokens};
use real_model::{answer, model, prompt, small};
use std::path::Path;
use std::sync::Arc;

const PROMPTS: [&str; 2] = [
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog near the river bank.",
    "Summarise: The harbour was closed on Monday after a storm damaged the northern pier. Ferries to the islands were \
     cancelled, and the harbour master said that the pier would stay closed until Friday. Fishing boats may use the \
     southern pier. The storm had damaged the pier last year, too, and repairs took two weeks.",
];

fn engine(model: &Arc<Model>, folder: &Path, speculate: Method, verify: Verify, calibrate: Calibrate) -> Engine {
    let config = EngineConfig { speculate, verify, calibrate, ..small(folder) };
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
    for message in PROMPTS {
        let prompt = prompt(model, message, "");
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
        for (request, expected) in requests(&model).into_iter().zip(&expected) {
            let sampling = request.sampling.clone();
            let drafted = answer(&drafting, request);
            assert_eq!(
                (&drafted.tokens, &drafted.text),
                (&expected.tokens, &expected.text),
                "{method} {verify:?} {sampling:?}"
            );
            accepted += drafted.usage.drafts.accepted;
        }
        // What pays is for a machine to say, and a busy one may say that nothing does.
        if verify == Verify::All {
            assert!(accepted > Tokens(20), "{method}: only {accepted} drafted tokens were right");
        }
    }
}
