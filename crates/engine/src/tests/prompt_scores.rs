//! Log probabilities of prompts: every row is scored once, whatever happens on the way.

use super::*;
use crate::fake_model::PANIC;
use crate::sampling::{Scratch, logprobs};
use duet_speculate::Method;

/// Some of the alphabet, again and again.
fn text(rotation: usize, len: usize) -> Vec<TokenId> {
    let mut text = letters("abcdefghijklmnopqrstuvwxyz").repeat(6);
    text.rotate_left(rotation);
    text.truncate(len);
    text
}

/// Asks how likely a prompt is, and for so many tokens more.
fn scored(prompt: &[TokenId], max_tokens: u32) -> GenerateRequest {
    GenerateRequest { prompt_logprobs: Some(3), ..hashed(prompt, max_tokens) }
}

/// What the model's logits say of every token, without an engine.
fn expected(prompt: &[TokenId]) -> Vec<PromptToken> {
    let model = FakeModel::new(1000, 100);
    let of = |at: usize| {
        let logits = model.logits_of(&prompt[..at]);
        (at > 0).then(|| logprobs(&logits, prompt[at], 3, &mut Scratch::default()))
    };
    prompt.iter().enumerate().map(|(at, &token)| PromptToken { token, logprobs: of(at) }).collect()
}

#[test]
fn a_prompt_is_scored_and_nothing_is_said() {
    for (len, chunk) in [(1, 8), (2, 8), (7, 8), (8, 8), (9, 8), (50, 8), (50, 1), (50, 1000)] {
        let bench = Bench::with(FakeModel::new(192, 100), &Setup { chunk, ..setup() });
        let answer = bench.answer(scored(&text(0, len), 0));
        assert_eq!(answer.prompt, expected(&text(0, len)), "{len} tokens in chunks of {chunk}");
        assert_eq!((answer.tokens.len(), answer.text(), answer.reason()), (0, String::new(), FinishReason::Length));
        let usage = answer.usage();
        assert_eq!((usage.prompt.as_usize(), usage.cached, usage.generated), (len, Tokens(0), Tokens(0)));
        assert_eq!((bench.stats().flows_kept, bench.stats().kv_pages_used), (0, 0), "nothing is kept of it");
    }
}

/// The last row of the prompt yields the answer's first token, as ever.
#[test]
fn the_answer_is_the_one_without_scores() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let answer = bench.answer(scored(&text(3, 40), 12));
    let plain = Bench::new(FakeModel::new(192, 100)).answer(hashed(&text(3, 40), 12));
    assert_eq!((answer.prompt, answer.tokens), (expected(&text(3, 40)), plain.tokens));
    assert!(plain.prompt.is_empty(), "who does not ask is told nothing");
}

/// How tokens are chosen has nothing to do with how likely they are.
#[test]
fn scores_are_those_of_the_raw_distribution() {
    let mut request = scored(&text(0, 30), 4);
    request.sampling = SamplingParams {
        temperature: 1.7,
        top_k: 2,
        repetition_penalty: 3.0,
        presence_penalty: 2.0,
        logit_bias: vec![(TokenId(4), 100.0)],
        ..SamplingParams::default()
    };
    assert_eq!(Bench::new(FakeModel::new(192, 100)).answer(request).prompt, expected(&text(0, 30)));
}

/// Rows that are not computed could not be scored. What is kept stays for those whose conversation it is.
#[test]
fn nothing_that_is_kept_stands_in_for_a_part() {
    let bench = Bench::new(FakeModel::new(192, 100));
    bench.answer(hashed(&text(3, 40), 1));
    let answer = bench.answer(scored(&text(3, 60), 0));
    assert_eq!((answer.usage().cached, answer.prompt), (Tokens(0), expected(&text(3, 60))));
    assert_eq!(bench.answer(hashed(&text(3, 60), 1)).usage().cached, Tokens(40));
}

/// Pre-empted, beside answers and others, on disk and back, lost and computed again, run again beside a failure: a prompt's
/// scores are those that it has alone, each told once.
#[test]
fn under_load_they_are_the_ones_alone() {
    for policy in PolicyName::ALL {
        for (pages, spill_pages) in [(4, 0), (4, 100), (100, 0)] {
            let setup = Setup { policy, spill_pages, speculate: Method::Duet, ..setup() };
            let bench = Bench::with(FakeModel::new(192, pages), &setup);
            let failing = bench.start(background(request(&[TokenId(3), PANIC])));
            let started: Vec<_> = (0..6)
                .map(|index| {
                    let prompt = text(index, 20 + 25 * index);
                    let class = if index % 3 == 2 { Class::Reactive } else { Class::Proactive };
                    let said = [0, 9][index % 2];
                    let generation = bench.start(GenerateRequest { class, ..scored(&prompt, said) });
                    let answered = bench.start(background(hashed(&text(index + 7, 60), 20)));
                    (prompt, said, generation, answered, bench.start(hashed(&text(index + 9, 30), 5)))
                })
                .collect();
            for (prompt, said, generation, answered, person) in started {
                let answer_here = answer(generation);
                assert_eq!(answer_here.prompt, expected(&prompt), "{policy}, {pages} pages, {}", prompt.len());
                assert_eq!(answer_here.tokens.len(), said as usize);
                assert_eq!((answer(answered).tokens.len(), answer(person).tokens.len()), (20, 5));
            }
            assert!(matches!(answer(failing).error(), EngineError::Internal(_)));
        }
    }
}
