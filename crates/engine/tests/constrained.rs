//! The real model held to grammars: what it writes is valid, what must come is drafted, and drafts change no token.
//! `DUET_TEST_MODEL` is the path of a GGUF file; without it this is skipped.

mod real_model;
mod vocabulary;

use duet_agents::{
    Automaton, Calls, Limits, Parallel, ResponseFormat, Strictness, Thinking, Tool, ToolChoice, ToolFormat, Turn,
    Vocabulary, constraint,
};
use duet_engine::{Constraint, Engine, EngineConfig, GenerateRequest, Method, SamplingParams, StopConditions, Verify};
use duet_types::Tokens;
use real_model::{answer, model, prompt, small};
use serde_json::{Value, json};
use std::sync::Arc;
use vocabulary::vocabulary;

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
    let start = |turn: &Turn<'_>| {
        let grammar = constraint(turn, &|name| vocabulary.special(name)).unwrap().unwrap();
        Constraint::new(Automaton::start(vocabulary, &grammar, Limits::default()).unwrap())
    };
    let mut held: Vec<(Constraint, IsValid)> = forms
        .into_iter()
        .map(|(form, is)| (start(&Turn { calls: None, answer: &form, thinking: Thinking::Off }), is))
        .collect();
    let (tools, choice) = ([weather()], ToolChoice::Required);
    let calls = Calls { format: ToolFormat::Hermes, tools: &tools, choice: &choice, parallel: Parallel::One };
    let turn = Turn { calls: Some(calls), answer: &ResponseFormat::Text, thinking: Thinking::Off };
    held.push((start(&turn), |text| {
        let call = text.trim().strip_prefix("<tool_call>").and_then(|text| text.strip_suffix("</tool_call>"));
        let call = call.and_then(|call| serde_json::from_str::<Value>(call).ok());
        call.is_some_and(|call| call["name"] == "get_weather" && call["arguments"]["city"].is_string())
    }));
    held
}

#[test]
fn answers_are_valid_and_the_same_with_drafts_of_what_must_come() {
    let Some(model) = model() else { return };
    let vocabulary = vocabulary(&model);
    let prompt = prompt(&model, "Is it warm in Rome?", "");
    let drawn = SamplingParams { temperature: 0.9, top_p: 0.9, seed: Some(3), ..SamplingParams::default() };
    let profiles = tempfile::tempdir().unwrap();
    let engine = |speculate, verify| {
        let config = EngineConfig { speculate, verify, ..small(profiles.path()) };
        Engine::start(Arc::clone(&model), config).unwrap()
    };
    let (plain, drafting) = (engine(Method::None, Verify::Paying), engine(Method::Duet, Verify::All));
    for sampling in [SamplingParams::default(), drawn] {
        for (index, (constraint, is_valid)) in held(&vocabulary).into_iter().enumerate() {
            let request = GenerateRequest {
                prompt: prompt.clone(),
                sampling: sampling.clone(),
                stop: StopConditions { max_tokens: Some(Tokens(96)), ..StopConditions::default() },
                constraint: Some(constraint),
                ..GenerateRequest::default()
            };
            let said = answer(&plain, request.clone());
            assert!(is_valid(&said.text), "{index}: {}", said.text);
            let drafted = answer(&drafting, request);
            assert_eq!((drafted.tokens, drafted.text), (said.tokens, said.text), "{index} {sampling:?}");
            assert!(index != 2 || drafted.usage.forced >= Tokens(8), "{:?}", drafted.usage);
            assert!(index != 2 || drafted.usage.drafts.accepted >= Tokens(6), "{:?}", drafted.usage);
        }
    }
}
