//! Many requests at once.

use super::*;
use crate::fake_model::HOLD;

#[test]
fn one_more_than_may_wait_is_refused() {
    let model = FakeModel { script: letters("ab"), ..FakeModel::new(1000, 100) };
    let bench = Bench::with(model, &Setup { queue_max: 1, ..setup() });
    let running = bench.start(request(&[HOLD, SPELL]));
    let queued = bench.start(spell());
    assert_eq!(bench.submit(spell()).unwrap_err(), EngineError::Busy { queued: 1 });
    bench.hold.let_go();
    assert_eq!(answer(running).text(), "ab");
    assert_eq!(answer(queued).text(), "ab");
    assert_eq!(bench.answer(spell()).text(), "ab");
}

/// Requests that wait hold their prompts and what is expected of their answers.
#[test]
fn more_tokens_than_may_wait_are_refused() {
    let model = FakeModel { script: letters("ab"), ..FakeModel::new(1000, 100) };
    let bench = Bench::with(model, &Setup { queue_tokens_max: Tokens(100), ..setup() });
    let running = bench.start(request(&[HOLD, SPELL]));
    let expecting = |tokens| GenerateRequest { predicted: vec![SPELL; tokens], ..spell() };
    let queued = bench.start(expecting(90));
    assert_eq!(bench.submit(expecting(10)).unwrap_err(), EngineError::Busy { queued: 1 });
    let small = bench.start(spell());
    bench.hold.let_go();
    for answered in [running, queued, small] {
        assert_eq!(answer(answered).text(), "ab");
    }
    assert_eq!(bench.answer(expecting(500)).text(), "ab");
}

#[test]
fn serial_requests_end_in_the_order_in_which_they_came() {
    let model = FakeModel { script: letters("ab"), ..FakeModel::new(1000, 100) };
    let bench = Bench::with(model, &Setup { policy: PolicyName::Serial, ..setup() });
    let running = bench.start(request(&[HOLD, SPELL]));
    let mut queued: Vec<Generation> = (0..3).map(|_| bench.start(spell())).collect();
    bench.hold.let_go();
    // The last one's first token comes after the others' ends.
    queued[2].next_blocking();
    for mut earlier in queued.drain(..2).chain([running]) {
        while earlier.events.try_recv().is_ok() {}
        assert!(earlier.events.is_closed());
    }
}

#[test]
fn a_hundred_requests_at_once_all_end_with_their_own_answers() {
    let bench = Bench::new(FakeModel::new(200, 20));
    let prompt = |index: usize| {
        let mut prompt = letters("abcdefghijklmnopqrstuvwxyz");
        prompt.rotate_left(index % 26);
        prompt.truncate(10 + index / 26);
        prompt
    };
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let bench = &bench;
                scope.spawn(move || {
                    let open: Vec<_> =
                        (0..25).map(|index| bench.start(hashed(&prompt(client * 25 + index), 12))).collect();
                    open.into_iter().map(answer).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(answers.len(), 100);
    let alone = Bench::new(FakeModel::new(200, 20));
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer.reason(), FinishReason::Length);
        assert_eq!(answer.tokens, alone.answer(hashed(&prompt(index), 12)).tokens, "request {index}");
    }
    assert_eq!((bench.stats().queued, bench.stats().running), (0, 0));
}

#[test]
fn invalid_requests_are_refused_before_any_work() {
    let bench = Bench::spelling(&letters("ab"));
    let mut invalid = spell();
    invalid.sampling.temperature = -1.0;
    let error = bench.submit(invalid).unwrap_err();
    assert_eq!(error.to_string(), "temperature must be between 0 and 2, got -1");
    assert_eq!(bench.submit(request(&[])).unwrap_err(), EngineError::EmptyPrompt);
    assert_eq!(bench.rows(), 0);
}
