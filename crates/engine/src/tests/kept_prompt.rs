//! Prompts that are read for the requests that follow.

use super::*;
use crate::request::Output;

fn prompt(len: usize) -> Vec<TokenId> {
    let mut text = letters("abcdefghijklmnopqrstuvwxyz").repeat(6);
    text.truncate(len);
    text
}

fn read(prompt: &[TokenId]) -> GenerateRequest {
    GenerateRequest { output: Output::KeptPrompt, ..hashed(prompt, 1000) }
}

#[test]
fn answers_begin_where_the_reading_ended() {
    let alone = |len| Bench::new(FakeModel::new(1000, 100)).answer(hashed(&prompt(len), 10)).tokens;
    for len in [1, 2, 63, 64, 65, 100] {
        let bench = Bench::new(FakeModel::new(1000, 100));
        let reading = bench.answer(read(&prompt(len)));
        assert_eq!((reading.tokens.len(), reading.text(), reading.reason()), (0, String::new(), FinishReason::Length));
        let (usage, rows) = (reading.usage(), bench.rows());
        assert_eq!((usage.prompt.as_usize(), usage.cached, rows), (len, Tokens(0), len));
        let answers: Vec<_> = (0..4).map(|_| bench.start(hashed(&prompt(len), 10))).collect();
        for generation in answers {
            let answer = answer(generation);
            assert_eq!((answer.usage().cached.as_usize(), &answer.tokens), (len - 1, &alone(len)));
        }
        // The last row of the prompt, and nine of decode.
        assert_eq!(bench.rows() - rows, 4 * 10);
    }
}

#[test]
fn a_reading_goes_on_from_what_is_kept() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    bench.answer(read(&prompt(40)));
    assert_eq!(bench.answer(read(&prompt(100))).usage().cached, Tokens(40));
    assert_eq!(bench.answer(hashed(&prompt(100), 3)).usage().cached, Tokens(99));
}

#[test]
fn the_reading_can_tell_how_likely_the_prompt_is() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let scored = GenerateRequest { prompt_logprobs: Some(2), ..read(&prompt(30)) };
    assert_eq!(bench.answer(scored).prompt.len(), 30);
    assert_eq!(bench.answer(hashed(&prompt(30), 3)).usage().cached, Tokens(29));
}

/// Memory for a single one of them: they read for themselves, and say the same.
#[test]
fn what_is_given_up_is_read_again() {
    let alone = Bench::new(FakeModel::new(192, 100)).answer(hashed(&prompt(100), 20)).tokens;
    let bench = Bench::new(FakeModel::new(192, 2));
    bench.answer(read(&prompt(100)));
    let answers: Vec<_> = (0..4).map(|_| bench.start(hashed(&prompt(100), 20))).collect();
    for generation in answers {
        assert_eq!(answer(generation).tokens, alone);
    }
}
