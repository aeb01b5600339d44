//! Embeddings: requests like any other, which end when their prompt is read.

use super::*;
use crate::fake_model::{HIDDEN, HOLD, PANIC};
use crate::request::Output;

/// Some of the alphabet, again and again.
fn text(rotation: usize, len: usize) -> Vec<TokenId> {
    let mut text = letters("abcdefghijklmnopqrstuvwxyz").repeat(6);
    text.rotate_left(rotation);
    text.truncate(len);
    text
}

fn embed(prompt: &[TokenId]) -> GenerateRequest {
    GenerateRequest { output: Output::Embedding, ..request(prompt) }
}

/// The mean of what the model says of every row, as one pass over all of them has it.
fn expected(prompt: &[TokenId]) -> Vec<f32> {
    let setup = Setup { chunk: 1000, ..setup() };
    Bench::with(FakeModel::new(1000, 100), &setup).answer(embed(prompt)).embedding.unwrap()
}

#[test]
fn a_prompt_is_read_and_nothing_is_said() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let answer = bench.answer(embed(&text(0, 50)));
    assert_eq!((answer.tokens.len(), answer.text(), answer.reason()), (0, String::new(), FinishReason::Stop));
    let usage = answer.usage();
    assert_eq!((usage.prompt, usage.cached, usage.generated), (Tokens(50), Tokens(0), Tokens(0)));
    let embedding = answer.embedding.unwrap();
    assert_eq!(embedding.len(), HIDDEN);
    assert!((embedding.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-6);
    assert_eq!(embedding, expected(&text(0, 50)), "chunks change nothing");
    assert_ne!(embedding, expected(&text(0, 51)), "every token counts");
    assert_eq!((bench.stats().flows_kept, bench.stats().kv_pages_used), (0, 0), "nothing is kept of it");
}

/// What is kept of a conversation says nothing of its hidden states, and stays for the conversation.
#[test]
fn nothing_that_is_kept_stands_in_for_a_part() {
    let bench = Bench::new(FakeModel::new(192, 100));
    bench.answer(hashed(&text(3, 40), 1));
    let answer = bench.answer(embed(&text(3, 60)));
    assert_eq!((answer.usage().cached, answer.embedding.unwrap()), (Tokens(0), expected(&text(3, 60))));
    assert_eq!(bench.answer(hashed(&text(3, 60), 1)).usage().cached, Tokens(40));
}

#[test]
fn a_cancelled_one_has_no_embedding() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let mut prompt = text(0, 30);
    prompt[10] = HOLD;
    let generation = bench.start(background(embed(&prompt)));
    bench.hold.wait_until_reached(1);
    generation.cancel();
    bench.hold.let_go();
    let cancelled = answer(generation);
    assert_eq!((cancelled.reason(), cancelled.embedding.is_none()), (FinishReason::Cancelled, true));
    assert_eq!(bench.stats().kv_pages_used, 0);
}

/// A person's answer overtakes embeddings at the end of a kernel, like any background work.
#[test]
fn a_person_does_not_wait_for_them() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let mut prompt = text(0, 150);
    (prompt[1], prompt[149]) = (HOLD, HOLD);
    let generation = bench.start(background(embed(&prompt)));
    bench.hold.wait_until_reached(1);
    let person = bench.start(hashed(&text(5, 4), 2));
    bench.hold.let_go();
    // The last row of the embedding is held for as long as this takes.
    assert_eq!(answer(person).tokens.len(), 2);
    let rows = bench.rows();
    assert!(rows < 150, "{rows} rows were computed, and the embedding needs 150");
    // Once more for the chunk that the person pre-empted, which may be computed again.
    bench.hold.let_go();
    bench.hold.let_go();
    assert!(answer(generation).embedding.is_some());
}

/// Pre-empted, beside answers and others, on disk and back, lost and computed again, run again beside a failure: it is the
/// one that it is alone, to the bit.
#[test]
fn under_load_it_is_the_one_alone() {
    for policy in PolicyName::ALL {
        for (pages, spill_pages) in [(4, 0), (4, 100), (100, 0)] {
            let setup = Setup { policy, spill_pages, ..setup() };
            let bench = Bench::with(FakeModel::new(192, pages), &setup);
            let failing = bench.start(background(request(&[TokenId(3), PANIC])));
            let embedded: Vec<_> = (0..6)
                .map(|index| {
                    let prompt = text(index, 20 + 25 * index);
                    let class = if index % 3 == 2 { Class::Reactive } else { Class::Proactive };
                    let generation = bench.start(GenerateRequest { class, ..embed(&prompt) });
                    let answered = bench.start(background(hashed(&text(index + 7, 60), 20)));
                    (prompt, generation, answered, bench.start(hashed(&text(index + 9, 30), 5)))
                })
                .collect();
            for (prompt, generation, answered, person) in embedded {
                let expected = expected(&prompt);
                assert_eq!(answer(generation).embedding, Some(expected), "{policy}, {pages} pages, {}", prompt.len());
                assert_eq!((answer(answered).tokens.len(), answer(person).tokens.len()), (20, 5));
            }
            assert!(matches!(answer(failing).error(), EngineError::Internal(_)));
        }
    }
}
