//! When an answer ends, and why.

use super::*;
use crate::fake_model::END;

#[test]
fn a_stop_string_ends_the_answer_and_is_never_seen() {
    let bench = Bench::spelling(&letters("abcdefg"));
    let mut request = spell();
    request.stop.stop = vec!["def".to_owned(), "xyz".to_owned()];
    let answer = bench.answer(request);
    assert_eq!(answer.texts, ["a", "b", "c", "", "", "", ""]);
    assert_eq!(answer.reason(), FinishReason::Stop);
    assert_eq!(answer.usage().generated, Tokens(6));
}

#[test]
fn text_held_back_for_a_stop_string_that_does_not_come_is_sent() {
    let bench = Bench::spelling(&letters("abcde"));
    let mut request = spell();
    request.stop.stop = vec!["cx".to_owned(), "dez".to_owned()];
    let answer = bench.answer(request);
    assert_eq!(answer.texts, ["a", "b", "", "c", "", "", "de"]);
}

#[test]
fn the_token_limit_ends_the_answer() {
    let bench = Bench::spelling(&letters("abcdefg"));
    let mut request = spell();
    request.stop.max_tokens = Some(Tokens(3));
    let answer = bench.answer(request);
    assert_eq!((answer.text().as_str(), answer.reason()), ("abc", FinishReason::Length));
    assert_eq!(answer.usage().generated, Tokens(3));
}

#[test]
fn the_context_ends_the_answer() {
    let bench = Bench::new(FakeModel::new(20, 100));
    let answer = bench.answer(request(&letters("abcdefghijklmnopq")));
    assert_eq!((answer.tokens.len(), answer.reason()), (3, FinishReason::Length));
    let error = bench.submit(request(&letters("abcdefghijklmnopqrst"))).unwrap_err();
    assert_eq!(error, EngineError::PromptTooLong { prompt: Tokens(20), context: Tokens(20) });
}

#[test]
fn the_end_of_the_turn_may_be_ignored() {
    let bench = Bench::spelling(&letters("ab"));
    let mut request = spell();
    request.stop.ignore_eos = true;
    request.stop.max_tokens = Some(Tokens(4));
    let answer = bench.answer(request);
    assert_eq!((answer.text().as_str(), answer.reason()), ("ab", FinishReason::Length));
    assert_eq!(answer.tokens[2..], [END, END]);
}
