//! What comes out, and in which order.

use super::*;
use crate::fake_model::END;

#[test]
fn tokens_come_in_order_and_then_the_end() {
    let answer = Bench::spelling(&letters("hello")).answer(spell());
    assert_eq!(answer.texts, ["h", "e", "l", "l", "o", "", ""]);
    assert_eq!(answer.tokens.last(), Some(&END));
    assert_eq!(answer.reason(), FinishReason::Stop);
    let Usage { prompt, cached, generated, time_to_first_token, total, .. } = answer.usage();
    assert_eq!((prompt, cached, generated), (Tokens(2), Tokens(0), Tokens(6)));
    assert!(time_to_first_token <= total);
}

#[test]
fn an_answer_does_not_depend_on_how_the_work_is_cut_and_by_whom_it_is_done() {
    let prompt = letters("thequickbrownfoxjumpsoverthelazydog");
    let answer = |setup: &Setup| Bench::with(FakeModel::new(1000, 100), setup).answer(hashed(&prompt, 30)).text();
    let expected = answer(&setup());
    assert_eq!(expected.len(), 30);
    for lanes in [vec![1], vec![2, 1]] {
        for chunk in [1, 7, 256] {
            for preempt_nodes in [1, 3, 100] {
                for policy in PolicyName::ALL {
                    let setup = Setup { lanes: lanes.clone(), chunk, preempt_nodes, policy, ..setup() };
                    assert_eq!(answer(&setup), expected, "{setup:?}");
                }
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let text = |seed| {
        let mut request = hashed(&letters("once"), 40);
        request.sampling = SamplingParams { temperature: 1.0, top_p: 0.9, seed, ..SamplingParams::default() };
        bench.answer(request).text()
    };
    assert_eq!(text(Some(3)), text(Some(3)));
    assert_ne!(text(Some(3)), text(Some(4)));
    assert_ne!(text(None), text(None));
}

#[test]
fn biases_and_penalties_change_what_is_chosen() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let text = |change: fn(&mut SamplingParams)| {
        let mut request = hashed(&letters("once"), 5);
        change(&mut request.sampling);
        bench.answer(request).text()
    };
    assert_eq!(text(|sampling| sampling.logit_bias = vec![(TokenId(16), 100.0)]), "qqqqq");
    let varied = text(|sampling| {
        sampling.logit_bias = vec![(TokenId(16), 5.0)];
        sampling.presence_penalty = 2.0;
        sampling.frequency_penalty = 2.0;
    });
    assert!(varied.starts_with('q') && varied != "qqqqq", "{varied}");
}

#[test]
fn log_probabilities_come_with_each_token() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let mut request = hashed(&letters("once"), 3);
    request.logprobs = Some(4);
    let mut generation = bench.start(request);
    for _ in 0..3 {
        let Some(GenerationEvent::Token { token, logprobs: Some(logprobs), .. }) = generation.next_blocking() else {
            panic!("a token with log probabilities was expected");
        };
        assert_eq!(logprobs.top.len(), 4);
        assert_eq!(logprobs.top[0], (token, logprobs.chosen));
        assert!(logprobs.top.is_sorted_by(|left, right| left.1 >= right.1));
    }
}
