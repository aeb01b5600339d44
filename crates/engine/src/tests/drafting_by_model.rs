//! A draft model brings tokens sooner, and no others, and nobody waits for it.

use super::*;
use crate::fake_model::{HOLD, VOCABULARY};

/// Drafts by a model whatever that costs, and verifies all.
fn by_model(method: Method) -> Setup {
    Setup { chunk: 64, preempt_nodes: 100, speculate: method, verify: Verify::All, ..setup() }
}

/// A model of so many pages, and one that drafts with as many as it likes.
fn beside(draft: FakeModel, setup: &Setup) -> Bench {
    Bench::drafting(FakeModel::new(1000, 100), Some(draft), setup, Default::default())
}

fn draft() -> FakeModel {
    FakeModel::new(1000, 100)
}

/// A figure of the engine.
fn figure(bench: &Bench, name: &str) -> f64 {
    let text = bench.runtime.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is no figure")).parse().unwrap()
}

/// Nothing in it comes again, so that nothing else drafts it.
fn novel(max_tokens: u32) -> GenerateRequest {
    hashed(&letters("onceuponatime"), max_tokens)
}

#[test]
fn a_model_that_says_the_same_drafts_nearly_all_of_a_text_that_nothing_else_knows() {
    let plain = Bench::with(draft(), &by_model(Method::None)).answer(novel(80));
    for method in [Method::DraftModel, Method::DuetDraft] {
        let bench = beside(draft(), &by_model(method));
        let drafted = bench.answer(novel(80));
        assert_eq!((&drafted.tokens, &drafted.texts.concat()), (&plain.tokens, &plain.texts.concat()), "{method}");
        let drafts = drafted.usage().drafts;
        assert!(drafts.accepted > Tokens(50), "{method}: {drafts:?}");
        assert!(drafts.by_model > std::time::Duration::ZERO);
        assert!(figure(&bench, r#"duet_draft_model_rows_total{rows="drafted"}"#) > 50.0);
        let read = figure(&bench, r#"duet_draft_model_rows_total{rows="read"}"#);
        assert!((13.0..50.0).contains(&read), "what was drafted right is not read again: {read}");
    }
}

#[test]
fn chance_penalties_and_biases_choose_the_same_tokens() {
    for (temperature, penalty) in [(0.0, 0.0), (0.7, 0.0), (1.0, 0.5)] {
        for seed in 0..4 {
            let mut request = novel(60);
            request.sampling = SamplingParams {
                temperature,
                top_k: 3,
                frequency_penalty: penalty,
                logit_bias: vec![(TokenId(4), 3.0)],
                seed: Some(seed),
                ..SamplingParams::default()
            };
            let plain = Bench::with(draft(), &by_model(Method::None)).answer(request.clone());
            let drafted = beside(draft(), &by_model(Method::DuetDraft)).answer(request);
            assert_eq!(drafted.tokens, plain.tokens, "{temperature} {penalty} {seed}");
        }
    }
}

#[test]
fn several_sequences_share_its_passes() {
    let requests = || (0..6).map(|index| hashed(&letters(&"abcabd".repeat(index + 1)), 40));
    let alone: Vec<_> =
        requests().map(|request| Bench::with(draft(), &by_model(Method::None)).answer(request)).collect();
    let bench = beside(draft(), &by_model(Method::DuetDraft));
    let open: Vec<_> = requests().map(|request| bench.start(background(request))).collect();
    for (generation, alone) in open.into_iter().zip(alone) {
        assert_eq!(answer(generation).tokens, alone.tokens);
    }
    let rows = figure(&bench, r#"duet_draft_model_rows_total{rows="drafted"}"#);
    let passes = figure(&bench, "duet_draft_model_passes_total");
    assert!(rows > 1.2 * passes, "{rows} rows in {passes} passes");
}

#[test]
fn the_turn_that_follows_is_not_read_again() {
    let bench = beside(draft(), &by_model(Method::DraftModel));
    let first = bench.answer(novel(40));
    let read = || figure(&bench, r#"duet_draft_model_rows_total{rows="read"}"#);
    let before = read();
    let prompt = [novel(0).prompt, first.tokens, letters("andthen")].concat();
    bench.answer(hashed(&prompt, 10));
    assert!(read() - before < 25.0, "{} rows of {} tokens were read", read() - before, prompt.len() + 10);
}

#[test]
fn a_person_who_comes_ends_the_drafting_of_background_work() {
    let draft = draft();
    let drafting = Arc::clone(&draft.hold);
    let bench = beside(draft, &by_model(Method::DraftModel));
    let work = bench.start(background(hashed(&[TokenId(1), HOLD], 30)));
    bench.hold.let_go();
    // The model reads the same prompt, at the end of the first pass.
    drafting.wait_until_reached(1);
    let person = bench.start(hashed(&letters("hello"), 3));
    drafting.let_go();
    answer(person);
    assert!(figure(&bench, "duet_draft_model_interruptions_total") >= 1.0);
    // Whatever it reads again is let go.
    (0..40).for_each(|_| drafting.let_go());
    assert_eq!(answer(work).tokens.len(), 30);
}

#[test]
fn one_without_room_has_no_such_drafts() {
    let bench = beside(FakeModel::new(1000, 1), &by_model(Method::DraftModel));
    let plain = Bench::with(draft(), &by_model(Method::None));
    let long = || hashed(&letters(&"abcdefg".repeat(20)), 20);
    assert_eq!(bench.answer(long()).tokens, plain.answer(long()).tokens);
    assert_eq!(figure(&bench, r#"duet_draft_model_rows_total{rows="drafted"}"#), 0.0);
    assert!(figure(&bench, "duet_draft_model_given_up_total") >= 1.0);
    // Others have room, now that it has given up what there was.
    assert!(bench.answer(novel(20)).usage().drafts.accepted > Tokens(5));
}

#[test]
fn a_model_that_fails_costs_its_drafts_alone() {
    let broken = FakeModel { is_broken: true, ..draft() };
    let bench = beside(broken, &by_model(Method::DuetDraft));
    let plain = Bench::with(draft(), &by_model(Method::None)).answer(novel(30));
    for _ in 0..2 {
        assert_eq!(bench.answer(novel(30)).tokens, plain.tokens);
    }
    assert_eq!(figure(&bench, "duet_draft_model_passes_total"), 0.0);
}

#[test]
fn tokens_that_the_large_model_does_not_have_are_not_drafted() {
    // It spells what is no token of the large model, which would refuse a pass with it.
    let script = vec![TokenId(VOCABULARY as u32 - 1); 20];
    let draft = DraftModel::new(FakeModel { script, ..draft() }, VOCABULARY - 1, 0.25);
    let said = draft.said_of(&[(VOCABULARY as u32 - 1, 5.0), (3, 1.0)]);
    assert_eq!(said, duet_speculate::Said::of_logits(&[(TokenId(3), 1.0)]));
}
