//! Answers that are held to a grammar: always within it, and the same with drafts and without.

use super::*;
use crate::Constraint;
use crate::fake_model::{END, THINK, VOCABULARY};
use duet_agents::{
    Automaton, Begins, Limits, ReasoningFormat, ResponseFormat, Thinking, TokenText, Turn, Vocabulary, constraint,
};
use proptest::prelude::*;
use std::sync::LazyLock;

/// The fake model's tokens: letters, and some that are no text.
static TOKENS: LazyLock<Vocabulary> = LazyLock::new(|| {
    let text = |token: u32| match char::from_u32(u32::from(b'a') + token).filter(char::is_ascii_lowercase) {
        Some(letter) => TokenText::Text(vec![letter as u8]),
        None if TokenId(token) == THINK[1] => TokenText::Special("</think>".to_owned()),
        None => TokenText::Special(format!("<{token}>")),
    };
    let spell = |text: &str| letters(text);
    Vocabulary::new((0..VOCABULARY as u32).map(text), &[END], spell).unwrap()
});

pub(super) fn held_to(pattern: &str) -> Constraint {
    Constraint::new(automaton(pattern, Thinking::Off))
}

/// Held to it behind reasoning that has begun.
pub(super) fn held_after_thought(pattern: &str) -> Constraint {
    Constraint::new(automaton(pattern, Thinking::On(ReasoningFormat::Think, Begins::Inside)))
}

fn automaton(pattern: &str, thinking: Thinking) -> Automaton {
    let form = ResponseFormat::Regex(pattern.to_owned());
    let turn = Turn { calls: None, answer: &form, thinking };
    let grammar = constraint(&turn, &|name| TOKENS.special(name)).unwrap().unwrap();
    Automaton::start(&TOKENS, &grammar, Limits::default()).unwrap()
}

fn answer(method: Method, sampling: SamplingParams, pattern: &str) -> Answer {
    let setup = Setup { chunk: 64, preempt_nodes: 100, speculate: method, ..setup() };
    let mut request = hashed(&letters("onceandoncemore"), 40);
    request.sampling = sampling;
    request.constraint = Some(held_to(pattern));
    Bench::with(FakeModel::new(1000, 100), &setup).answer(request)
}

/// Letters, classes, repetitions and choices; not too many of them.
fn pattern() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        "[a-e]{1,4}".prop_map(|text| text),
        Just("[a-m]".to_owned()),
        Just("[n-z]{2,5}".to_owned()),
        Just("(once|and|more)".to_owned()),
        Just("[aeiou]*".to_owned()),
    ];
    prop::collection::vec(atom, 1..6).prop_map(|atoms| atoms.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answers_are_within_their_grammar_and_drafts_change_no_token(
        pattern in pattern(),
        temperature in prop_oneof![Just(0.0_f32), 0.3..1.5_f32],
        frequency_penalty in prop_oneof![Just(0.0_f32), Just(0.5_f32)],
        seed in any::<u64>(),
    ) {
        let sampling = SamplingParams { temperature, frequency_penalty, seed: Some(seed), ..SamplingParams::default() };
        let plain = answer(Method::None, sampling.clone(), &pattern);
        let drafted = answer(Method::Duet, sampling, &pattern);
        prop_assert_eq!(&drafted.tokens, &plain.tokens, "{}", pattern);
        prop_assert_eq!(drafted.text(), plain.text());
        if plain.reason() == FinishReason::Stop {
            let whole = is_within(&pattern, &plain.text());
            prop_assert!(whole, "{} is not {}", plain.text(), pattern);
        }
    }
}

/// Whether a text is in the language of a pattern: its letters and the end are what an automaton takes.
fn is_within(pattern: &str, text: &str) -> bool {
    let mut automaton = automaton(pattern, Thinking::Off);
    letters(text).iter().all(|letter| automaton.commit(*letter).is_ok()) && automaton.is_accepting()
}

#[test]
fn an_answer_ends_where_its_grammar_does() {
    let answer = answer(Method::Duet, SamplingParams::default(), "once(and)?once");
    assert_eq!(answer.reason(), FinishReason::Stop);
    assert!(["onceonce", "onceandonce"].contains(&answer.text().as_str()), "{}", answer.text());
}

/// The model has no digits, so nothing can come behind the first word.
#[test]
fn an_answer_that_cannot_go_on_in_its_form_fails_and_is_not_kept() {
    for method in [Method::None, Method::Duet] {
        let setup = Setup { speculate: method, ..setup() };
        let bench = Bench::with(FakeModel::new(1000, 100), &setup);
        let mut request = hashed(&letters("onceandoncemore"), 40);
        request.constraint = Some(held_to("once[0-9]and"));
        let answer = super::answer(bench.start(request));
        assert_eq!(answer.error(), &EngineError::FormLost);
        assert_eq!(answer.texts.concat(), "once");
        assert_eq!(bench.stats().flows_kept, 0);
    }
}

#[test]
fn answers_with_and_without_a_grammar_run_side_by_side() {
    let bench = Bench::with(FakeModel::new(1000, 400), &setup());
    let held = |pattern: &str| {
        let mut request = hashed(&letters("onceandoncemore"), 30);
        request.constraint = Some(held_to(pattern));
        request
    };
    let alone = bench.answer(hashed(&letters("onceandoncemore"), 30)).tokens;
    let requests = [held("[a-c]{12}"), hashed(&letters("onceandoncemore"), 30), held("[x-z]{9}")];
    let running = requests.map(|request| bench.start(request));
    let answers = running.map(super::answer);
    assert!(answers[0].text().len() == 12 && answers[0].text().chars().all(|letter| letter <= 'c'));
    assert_eq!(answers[1].tokens, alone);
    assert!(answers[2].text().len() == 9 && answers[2].text().chars().all(|letter| letter >= 'x'));
}
