//! Texts for the encoder, beside answers: each comes to what it is, whatever runs beside it, is preempted or fails.

use super::{Bench, Setup, answer, background, hashed, request, setup};
use crate::encoding::EncodeRequest;
use crate::fake_model::{FakeModel, HOLD, PANIC, hash_of};
use crate::handle::Generation;
use crate::request::{EngineError, GenerationEvent};
use duet_model::encoder::Text;
use duet_scheduler::machine::Capabilities;
use duet_scheduler::policy::PolicyName;
use duet_types::{Class, Nanos, TenantId, TokenId};

/// Texts of these lengths, of letters.
fn texts(seed: usize, lengths: &[usize]) -> Vec<Text> {
    let text = |(index, &length): (usize, &usize)| {
        let tokens = (0..length).map(|at| TokenId(((seed * 7 + index * 5 + at * at) % 26) as u32)).collect();
        Text::of_tokens(tokens, length)
    };
    lengths.iter().enumerate().map(text).collect()
}

fn encode(bench: &Bench, class: Class, texts: &[Text]) -> Generation {
    let request = EncodeRequest { texts: texts.into(), class, tenant: TenantId::default() };
    let (id, events) = bench.runtime.encode(request).unwrap();
    Generation { id, events, engine: bench.runtime.canceller() }
}

/// What the texts came to, or why they did not.
fn results(mut generation: Generation) -> Result<Vec<f32>, EngineError> {
    let mut results = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Embedding(vector) => results.push(vector[0]),
            GenerationEvent::Finished { usage, .. } => assert_eq!(usage.generated.0, 0),
            GenerationEvent::Failed(error) => return Err(error),
            other => panic!("{other:?}"),
        }
    }
    Ok(results)
}

fn expected(texts: &[Text]) -> Vec<f32> {
    texts.iter().map(|text| hash_of(text.tokens())).collect()
}

#[test]
fn texts_come_to_what_they_are_under_every_policy() {
    for policy in PolicyName::ALL {
        for (pages, spill_pages) in [(4, 0), (4, 100), (100, 0)] {
            let setup = Setup { policy, spill_pages, ..setup() };
            let bench = Bench::with(FakeModel::new(192, pages), &setup);
            let open: Vec<_> = (0..6)
                .map(|index| {
                    // Longer than the context of the model that answers, and than a chunk of it.
                    let texts = texts(index, &[1, 5 + 40 * index, 17]);
                    let class = if index % 3 == 2 { Class::Reactive } else { Class::Proactive };
                    let encoding = encode(&bench, class, &texts);
                    let answered = bench.start(background(hashed(&[TokenId(index as u32); 60], 20)));
                    (texts, encoding, answered, bench.start(hashed(&[TokenId(9 + index as u32); 30], 5)))
                })
                .collect();
            for (texts, encoding, answered, person) in open {
                assert_eq!(results(encoding).unwrap(), expected(&texts), "{policy}, {pages} pages");
                assert_eq!((answer(answered).tokens.len(), answer(person).tokens.len()), (20, 5));
            }
            assert_eq!(bench.runtime.backend().pool.used_pages().min(1), bench.runtime.stats().flows_kept.min(1));
        }
    }
}

#[test]
fn texts_go_to_the_cores_beside_a_lane_of_fixed_shapes() {
    for policy in PolicyName::ALL {
        let setup = Setup { policy, first: Capabilities::static_with(Nanos(5_000_000)), ..setup() };
        let bench = Bench::with(FakeModel::new(192, 100), &setup);
        let open: Vec<_> = (0..4)
            .map(|index| {
                let texts = texts(index, &[30, 3 + 40 * index]);
                let class = if index % 2 == 1 { Class::Reactive } else { Class::Proactive };
                let encoding = encode(&bench, class, &texts);
                (texts, encoding, bench.start(hashed(&[TokenId(9 + index as u32); 30], 5)))
            })
            .collect();
        for (texts, encoding, person) in open {
            assert_eq!(results(encoding).unwrap(), expected(&texts), "{policy}");
            assert_eq!(answer(person).tokens.len(), 5);
        }
    }
}

#[test]
fn an_answer_goes_between_two_kernels_of_texts() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let mut held = texts(1, &[40, 40]);
    held[0] = Text::of_tokens([held[0].tokens(), &[HOLD]].concat(), 41);
    let encoding = encode(&bench, Class::Proactive, &held);
    bench.hold.wait_until_reached(1);
    let person = bench.start(hashed(&[TokenId(3); 30], 5));
    bench.hold.let_go();
    // The texts have eight nodes to go when the answer comes, in kernels of two at most.
    assert_eq!(answer(person).tokens.len(), 5);
    assert_eq!(results(encoding).unwrap(), expected(&held));
}

#[test]
fn texts_whose_kernel_panics_fail_alone() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let mut broken = texts(1, &[10, 10]);
    broken[1] = Text::of_tokens(vec![PANIC], 1);
    let encoding = encode(&bench, Class::Proactive, &broken);
    let others = texts(2, &[3, 4]);
    let fine = encode(&bench, Class::Proactive, &others);
    assert!(matches!(results(encoding), Err(EngineError::Internal(_))));
    assert_eq!(results(fine).unwrap(), expected(&others));
    assert_eq!(answer(bench.start(hashed(&[TokenId(3); 30], 5))).tokens.len(), 5);
}

#[test]
fn texts_that_nobody_wants_are_given_up() {
    let bench = Bench::new(FakeModel::new(192, 100));
    let mut held = texts(1, &[40]);
    held[0] = Text::of_tokens([held[0].tokens(), &[HOLD]].concat(), 41);
    let encoding = encode(&bench, Class::Proactive, &held);
    bench.hold.wait_until_reached(1);
    drop(encoding);
    bench.hold.let_go();
    let others = texts(2, &[3, 4]);
    assert_eq!(results(encode(&bench, Class::Proactive, &others)).unwrap(), expected(&others));
    assert_eq!(bench.runtime.stats().running, 0);
}

#[test]
fn no_texts_are_refused() {
    let bench = Bench::new(FakeModel::new(192, 100));
    for texts in [Vec::new(), vec![Text::of_tokens(Vec::new(), 0)]] {
        let request = EncodeRequest { texts: texts.into(), class: Class::Proactive, tenant: TenantId::default() };
        assert_eq!(bench.runtime.encode(request).unwrap_err(), EngineError::EmptyPrompt);
    }
    assert!(!answer(bench.start(request(&[TokenId(3), TokenId(4)]))).tokens.is_empty());
}
