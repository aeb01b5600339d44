//! Reasoning that is bounded: it ends after its tokens, in all ways that tokens are chosen, and the answer follows.

use super::constrained::{held_after_thought, held_to};
use super::*;
use crate::fake_model::THINK;
use crate::thought::ThoughtBound;
use duet_agents::{Begins, ReasoningFormat};

fn bounded(request: GenerateRequest, begins: Begins, max: u32) -> GenerateRequest {
    let [_, closing] = THINK;
    let bound = ThoughtBound { format: ReasoningFormat::Think, begins, max: Tokens(max), closing: vec![closing] };
    GenerateRequest { thought: Some(bound), marks: THINK.to_vec(), ..request }
}

fn spelled(script: &[TokenId], begins: Begins, max: u32) -> Answer {
    let model = FakeModel { script: script.to_vec(), ..FakeModel::new(1000, 100) };
    Bench::with(model, &setup()).answer(bounded(spell(), begins, max))
}

#[test]
fn a_thought_is_closed_after_its_tokens_and_the_answer_follows() {
    let answer = spelled(&letters("abcdefgh"), Begins::Inside, 3);
    // The model spells by its place, so the mark stands for a letter.
    assert_eq!((answer.text().as_str(), answer.reason()), ("abc</think>efgh", FinishReason::Stop));
    assert_eq!(answer.usage().generated, Tokens(9), "the mark and the end of the turn count");

    let opened = [&THINK[..1], &letters("abcdefgh")].concat();
    assert_eq!(spelled(&opened, Begins::Outside, 3).text(), "<think>abc</think>efgh");
    assert_eq!(spelled(&letters("abcdefgh"), Begins::Outside, 3).text(), "abcdefgh");
    let closed = [&letters("ab"), &THINK[1..], &letters("cdef")].concat();
    assert_eq!(spelled(&closed, Begins::Inside, 3).text(), "ab</think>cdef");
}

#[test]
fn the_bound_of_the_answer_goes_before_that_of_the_thought() {
    let model = FakeModel { script: letters("abcdefgh"), ..FakeModel::new(1000, 100) };
    let mut request = bounded(spell(), Begins::Inside, 5);
    request.stop.max_tokens = Some(Tokens(3));
    let answer = Bench::with(model, &setup()).answer(request);
    assert_eq!((answer.text().as_str(), answer.reason()), ("abc", FinishReason::Length));
}

#[test]
fn drafts_change_no_token_of_it() {
    let setup = |speculate| Setup { chunk: 64, preempt_nodes: 100, speculate, ..setup() };
    for temperature in [0.0, 0.8] {
        for max in [0, 1, 4, 17] {
            let answer = |method| {
                let mut request = bounded(hashed(&letters("onceonceonce"), 40), Begins::Inside, max);
                request.sampling = SamplingParams {
                    temperature,
                    frequency_penalty: 0.3,
                    top_k: 3,
                    seed: Some(5),
                    logit_bias: vec![(TokenId(4), 3.0), (TokenId(14), 3.0)],
                    ..SamplingParams::default()
                };
                Bench::with(FakeModel::new(1000, 100), &setup(method)).answer(request)
            };
            let (plain, drafted) = (answer(Method::None), answer(Method::Duet));
            assert_eq!(drafted.tokens, plain.tokens, "{temperature} {max}");
            assert_eq!(plain.text().find("</think>"), Some(max as usize));
            assert_eq!(plain.tokens.len(), 40);
        }
    }
}

/// A mark of three tokens takes one pass, in a form as well.
#[test]
fn the_mark_is_verified_in_one_pass() {
    let [x, y] = [TokenId(23), TokenId(24)];
    for constraint in [None, Some(held_after_thought("[d-h]{5}"))] {
        let answer = |speculate| {
            let model = FakeModel { script: letters("abcdefgh"), ..FakeModel::new(1000, 100) };
            let mut request = bounded(spell(), Begins::Inside, 2);
            request.constraint = constraint.clone();
            if let Some(thought) = &mut request.thought {
                thought.closing = vec![x, y, THINK[1]];
            }
            Bench::with(model, &Setup { chunk: 64, preempt_nodes: 100, speculate, ..setup() }).answer(request)
        };
        let (plain, drafted) = (answer(Method::None), answer(Method::Duet));
        assert_eq!((drafted.text(), plain.text().starts_with("abxy</think>")), (plain.text(), true));
        assert!(drafted.usage().drafts.accepted >= Tokens(3), "{:?}", drafted.usage().drafts);
    }
}

/// The grammar lets a thought come for as long as it likes, and the mark at any time.
#[test]
fn an_answer_of_a_form_follows_a_bounded_thought() {
    for (speculate, temperature) in [(Method::None, 0.0), (Method::Duet, 0.0), (Method::Duet, 0.9)] {
        let setup = Setup { chunk: 64, preempt_nodes: 100, speculate, ..setup() };
        let mut request = bounded(hashed(&letters("onceandoncemore"), 40), Begins::Inside, 6);
        request.sampling = SamplingParams { temperature, seed: Some(3), ..SamplingParams::default() };
        request.constraint = Some(held_after_thought("[x-z]{5}"));
        let answer = Bench::with(FakeModel::new(1000, 100), &setup).answer(request);
        let text = answer.text();
        let (thought, said) = text.split_once("</think>").expect("it ends");
        assert_eq!((thought.len(), said.len(), answer.reason()), (6, 5, FinishReason::Stop), "{text}");
        assert!(said.chars().all(|letter| letter >= 'x'), "{text}");
    }
}

/// What has no room for a thought is not given the end of one.
#[test]
fn a_grammar_without_thoughts_goes_before_the_bound() {
    let mut request = bounded(hashed(&letters("once"), 40), Begins::Inside, 2);
    request.constraint = Some(held_to("[x-z]{5}"));
    let answer = Bench::with(FakeModel::new(1000, 100), &setup()).answer(request);
    assert_eq!((answer.text().len(), answer.reason()), (5, FinishReason::Stop), "{}", answer.text());
}
