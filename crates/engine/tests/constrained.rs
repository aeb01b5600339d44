//! The real model held to grammars: what it writes is valid, what must come is drafted, and drafts change no token.
//! `DUET_TEST_MODEL` is the path of a GGUF file; without it this is skipped.

use duet_agents::{
    Automaton, Calls, Limits, Parallel, ResponseFormat, Strictness, Thinking, TokenText, Tool, ToolChoice, ToolFormat,
    Turn as Wanted, Vocabulary, constraint,
};
use duet_engine::{
    Constraint, Engine, EngineConfig, GenerateRequest, GenerationEvent, Method, SamplingParams, StopConditions, Usage,
    Verify,
};
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Bytes, TokenId, Tokens};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

fn vocabulary(model: &Arc<Model>) -> Vocabulary {
    let tokenizer = model.tokenizer();
    let all = (0..tokenizer.vocabulary() as u32).map(TokenId);
    let ends: Vec<TokenId> = all.clone().filter(|token| tokenizer.is_end_of_generation(*token)).collect();
    let text = |token| match tokenizer.text_of_special(token) {
        Some(name) => TokenText::Special(name.to_owned()),
        None => TokenText::Text(tokenizer.bytes(token).to_vec()),
    };
    let spelled = Arc::clone(model);
    Vocabulary::new(all.map(text), &ends, move |text| spelled.tokenizer().encode(text, SpecialTokens::AsText)).unwrap()
}

fn weather() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    });
    Tool { name: "get_weather".to_owned(), description: String::new(), parameters, strict: Strictness::Strict }
}

/// What every answer within a grammar is.
type IsValid = fn(&str) -> bool;

/// Grammars, and what every answer within them is.
fn held(vocabulary: &Vocabulary) -> Vec<(Constraint, IsValid)> {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let forms: [(ResponseFormat, IsValid); 2] = [
        (ResponseFormat::JsonSchema { schema, strict: Strictness::Strict }, |text| {
            serde_json::from_str::<Value>(text).is_ok_and(|value| value["name"].is_string() && value["age"].is_u64())
        }),
        (ResponseFormat::Regex("(yes|no), because [a-z ]{5,20}\\.".to_owned()), |text| text.ends_with('.')),
    ];
    let start = |turn: &Wanted<'_>| {
        let grammar = constraint(turn, &|name| vocabulary.special(name)).unwrap().unwrap();
        Constraint::new(Automaton::start(vocabulary, &grammar, Limits::default()).unwrap())
    };
    let mut held: Vec<(Constraint, IsValid)> = forms
        .into_iter()
        .map(|(form, is)| (start(&Wanted { calls: None, answer: &form, thinking: Thinking::Off }), is))
        .collect();
    let (tools, choice) = ([weather()], ToolChoice::Required);
    let calls = Calls { format: ToolFormat::Hermes, tools: &tools, choice: &choice, parallel: Parallel::One };
    let turn = Wanted { calls: Some(calls), answer: &ResponseFormat::Text, thinking: Thinking::Off };
    held.push((start(&turn), |text| {
        let call = text.trim().strip_prefix("<tool_call>").and_then(|text| text.strip_suffix("</tool_call>"));
        let call = call.and_then(|call| serde_json::from_str::<Value>(call).ok());
        call.is_some_and(|call| call["name"] == "get_weather" && call["arguments"]["city"].is_string())
    }));
    held
}

fn engine(model: &Arc<Model>, folder: &Path, speculate: Method, verify: Verify) -> Engine {
    let config = EngineConfig {
        context: Some(Tokens(1024)),
        kv_bytes: Some(Bytes(64 << 20)),
        spill_bytes: Some(Bytes(0)),
        profile_folder: Some(folder.to_owned()),
        speculate,
        verify,
        ..EngineConfig::default()
    };
    Engine::start(Arc::clone(model), config).unwrap()
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
fn answers_are_valid_and_the_same_with_drafts_of_what_must_come() {
    let Some(path) = duet_testing::path(Need::Model) else { return };
    let model = Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap());
    let vocabulary = vocabulary(&model);
    let text =
        model.template().render(&[ChatMessage::new("user", "Is it warm in Rome?")], None, Turn::Generate).unwrap();
    let prompt = model.tokenizer().encode_prompt(&text, SpecialTokens::Parse);
    let drawn = SamplingParams { temperature: 0.9, top_p: 0.9, seed: Some(3), ..SamplingParams::default() };
    let profiles = tempfile::tempdir().unwrap();
    let plain = engine(&model, profiles.path(), Method::None, Verify::Paying);
    let drafting = engine(&model, profiles.path(), Method::Duet, Verify::All);
    for sampling in [SamplingParams::default(), drawn] {
        for (index, (constraint, is_valid)) in held(&vocabulary).into_iter().enumerate() {
            let request = GenerateRequest {
                prompt: prompt.clone(),
                sampling: sampling.clone(),
                stop: StopConditions { max_tokens: Some(Tokens(96)), ..StopConditions::default() },
                constraint: Some(constraint),
                ..GenerateRequest::default()
            };
            let (tokens, text, _) = answer(&plain, request.clone());
            assert!(is_valid(&text), "{index}: {text}");
            let (drafted, drafted_text, usage) = answer(&drafting, request);
            assert_eq!((drafted, drafted_text), (tokens, text), "{index} {sampling:?}");
            assert!(index != 2 || usage.forced >= Tokens(8), "{usage:?}");
            assert!(index != 2 || usage.drafts.accepted >= Tokens(6), "{usage:?}");
        }
    }
}
