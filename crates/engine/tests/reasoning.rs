//! The real model's reasoning, bounded: it is ended after its tokens, the answer has its form, and drafts change no token.
//! `DUET_TEST_MODEL` is the path of a GGUF file; without it this is skipped.

mod real_model;
mod vocabulary;

use duet_agents::{
    Automaton, Begins, Limits, ReasoningFormat, ResponseFormat, Strictness, Thinking, Turn, Vocabulary, constraint,
};
use duet_engine::{
    Constraint, Engine, EngineConfig, GenerateRequest, Method, SamplingParams, StopConditions, ThoughtBound, Verify,
};
use duet_types::{TokenId, Tokens};
use real_model::{answer, model, prompt, small};
use serde_json::{Value, json};
use std::sync::Arc;

const FORMAT: ReasoningFormat = ReasoningFormat::Think;
const BOUND: Tokens = Tokens(5);

/// A thought that is open, then an object with a city.
fn form(vocabulary: &Vocabulary) -> Constraint {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": false,
    });
    let answer = ResponseFormat::JsonSchema { schema, strict: Strictness::Strict };
    let turn = Turn { calls: None, answer: &answer, thinking: Thinking::On(FORMAT, Begins::Inside) };
    let grammar = constraint(&turn, &|name| vocabulary.special(name)).unwrap().unwrap();
    Constraint::new(Automaton::start(vocabulary, &grammar, Limits::default()).unwrap())
}

/// Where the mark begins, in tokens.
fn place(tokens: &[TokenId], mark: &[TokenId]) -> usize {
    tokens.windows(mark.len()).position(|window| window == mark).expect("the thought is ended")
}

#[test]
fn a_bounded_thought_is_ended_and_the_answer_has_its_form() {
    let Some(model) = model() else { return };
    let vocabulary = vocabulary::vocabulary(&model);
    let closing = model.tokenizer().encode(FORMAT.closing(), duet_model::tokenizer::SpecialTokens::Parse);
    let profiles = tempfile::tempdir().unwrap();
    let engine = |speculate, verify| {
        let config = EngineConfig { speculate, verify, ..small(profiles.path()) };
        Engine::start(Arc::clone(&model), config).unwrap()
    };
    let (plain, drafting) = (engine(Method::None, Verify::Paying), engine(Method::Duet, Verify::All));
    let drawn = SamplingParams { temperature: 0.9, top_p: 0.9, seed: Some(3), ..SamplingParams::default() };
    for (sampling, constraint) in [
        (SamplingParams::default(), None),
        (SamplingParams::default(), Some(form(&vocabulary))),
        (drawn, Some(form(&vocabulary))),
    ] {
        let has_form = constraint.is_some();
        let thought = ThoughtBound { format: FORMAT, begins: Begins::Inside, max: BOUND, closing: closing.clone() };
        let request = GenerateRequest {
            prompt: prompt(&model, "What is the capital of Italy?", "<think>\n"),
            sampling,
            stop: StopConditions { max_tokens: Some(Tokens(64)), ..StopConditions::default() },
            constraint,
            thought: Some(thought),
            ..GenerateRequest::default()
        };
        let said = answer(&plain, request.clone());
        // At most four more end a character, or what looks like the mark.
        let place = place(&said.tokens, &closing);
        assert!((BOUND.as_usize()..=BOUND.as_usize() + 4).contains(&place), "{place}: {said:?}");
        assert_eq!(said.usage.generated.as_usize(), said.tokens.len());
        // Whitespace of any kind may follow the mark, which is no part of the answer.
        let (_, rest) = said.text.split_once("</think>").expect("the mark is text");
        let object = serde_json::from_str::<Value>(rest.trim()).is_ok_and(|value| value["city"].is_string());
        assert!(object || !has_form, "{:?}", said.text);
        let drafted = answer(&drafting, request);
        assert_eq!((&drafted.tokens, &drafted.text), (&said.tokens, &said.text));
    }
}
