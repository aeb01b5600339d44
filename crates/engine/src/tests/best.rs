//! Rows of which a device brings back the best tokens and no others: answers are the same, and who needs more gets it.

use super::constrained::held_to;
use super::*;
use crate::request::Output;
use std::sync::atomic::AtomicUsize;

/// What requests ask for, and how many rows of each may be looked at by their best tokens alone.
fn requests() -> Vec<(&'static str, GenerateRequest, Rows)> {
    let sampled = |sampling: SamplingParams| GenerateRequest {
        sampling: SamplingParams { seed: Some(5), ..sampling },
        ..hashed(&letters("onceonceonce"), 40)
    };
    let warm = || SamplingParams { temperature: 0.9, ..SamplingParams::default() };
    let cut = SamplingParams { top_k: 7, top_p: 0.8, min_p: 0.05, ..warm() };
    let held = GenerateRequest { constraint: Some(held_to("[a-m]{40}")), ..sampled(SamplingParams::default()) };
    let told = GenerateRequest { logprobs: Some(2), ..sampled(SamplingParams::default()) };
    vec![
        ("greedy", sampled(SamplingParams::default()), Rows::Best),
        ("of three", sampled(SamplingParams { top_k: 3, ..warm() }), Rows::Best),
        ("of seven, cut again", sampled(cut), Rows::Best),
        ("of all", sampled(warm()), Rows::Whole),
        ("a nucleus", sampled(SamplingParams { top_p: 0.7, ..warm() }), Rows::Whole),
        ("the likely ones", sampled(SamplingParams { min_p: 0.2, ..warm() }), Rows::Whole),
        ("frequency", sampled(SamplingParams { frequency_penalty: 0.6, ..SamplingParams::default() }), Rows::Whole),
        ("repetition", sampled(SamplingParams { repetition_penalty: 1.4, top_k: 3, ..warm() }), Rows::Whole),
        ("a bias", sampled(SamplingParams { logit_bias: vec![(TokenId(4), 2.0)], ..warm() }), Rows::Whole),
        ("a grammar", held, Rows::Whole),
        ("log probabilities", told, Rows::Whole),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Best,
    Whole,
}

/// A bench whose model brings back the best of rows, and the count of such rows; or one whose model does not.
fn bench(speculate: Method, best: Option<&Arc<AtomicUsize>>) -> Bench {
    let setup = Setup { chunk: 64, preempt_nodes: 100, speculate, ..setup() };
    Bench::with(FakeModel { best: best.cloned(), ..FakeModel::new(1000, 100) }, &setup)
}

#[test]
fn answers_are_those_of_whole_rows_and_who_needs_whole_rows_has_them() {
    for method in [Method::None, Method::Duet] {
        for (name, request, rows) in requests() {
            let asked = Arc::default();
            let expected = bench(method, None).answer(request.clone());
            let found = bench(method, Some(&asked)).answer(request);
            assert_eq!(found.tokens, expected.tokens, "{name}, {method}");
            assert_eq!(found.tokens.len(), 40, "{name}, {method}");
            let asked = asked.load(Ordering::Relaxed);
            assert_eq!(asked > 0, rows == Rows::Best, "{name}, {method}: {asked} rows");
        }
    }
}

#[test]
fn requests_of_all_kinds_share_passes() {
    for method in [Method::None, Method::Duet] {
        let asked = Arc::default();
        let answers = |bench: Bench| {
            let started: Vec<_> =
                requests().into_iter().map(|(_, request, _)| bench.start(background(request))).collect();
            started.into_iter().map(|generation| answer(generation).tokens).collect::<Vec<_>>()
        };
        assert_eq!(answers(bench(method, Some(&asked))), answers(bench(method, None)), "{method}");
    }
}

#[test]
fn a_read_prompt_needs_no_row() {
    let asked = Arc::default();
    let request = GenerateRequest { output: Output::KeptPrompt, ..hashed(&letters("onceonce"), 1) };
    assert_eq!(bench(Method::None, Some(&asked)).answer(request).tokens, []);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}
