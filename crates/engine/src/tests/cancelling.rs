//! Cancellation at every stage, and what it leaves behind.

use super::*;
use crate::fake_model::HOLD;

#[test]
fn a_queued_request_is_cancelled_at_once() {
    let bench = Bench::spelling(&letters("ab"));
    let running = bench.start(request(&[HOLD, SPELL]));
    bench.hold.wait_until_reached(1);
    let queued = bench.start(spell());
    assert_eq!(bench.stats().running, 2);
    queued.cancel();
    let cancelled = answer(queued);
    assert_eq!((cancelled.tokens.len(), cancelled.reason()), (0, FinishReason::Cancelled));
    bench.hold.let_go();
    assert_eq!(answer(running).text(), "ab");
}

#[test]
fn prefill_stops_at_the_end_of_its_kernel() {
    let bench = Bench::spelling(&letters("ab"));
    let mut prompt = letters("abcdefghijklmnopqrstuvwxyz");
    prompt[10] = HOLD;
    let generation = bench.start(background(request(&prompt)));
    bench.hold.wait_until_reached(1);
    generation.cancel();
    bench.hold.let_go();
    let cancelled = answer(generation);
    assert_eq!((cancelled.tokens.len(), cancelled.reason()), (0, FinishReason::Cancelled));
    // The first chunk; the second was under way and given up.
    assert_eq!(bench.rows(), 8);
    // What was computed is kept: the same prompt would go on from there.
    assert_eq!((bench.stats().running, bench.stats().flows_kept), (0, 1));
    bench.hold.let_go();
    assert_eq!(bench.answer(hashed(&prompt, 1)).usage().cached, Tokens(8));
}

#[test]
fn decode_stops_at_the_end_of_its_kernel() {
    let script = [letters("a"), vec![HOLD], letters("bc")].concat();
    let bench = Bench::spelling(&script);
    let generation = bench.start(background(spell()));
    bench.hold.wait_until_reached(1);
    generation.cancel();
    bench.hold.let_go();
    let cancelled = answer(generation);
    assert_eq!((cancelled.text().as_str(), cancelled.reason()), ("a", FinishReason::Cancelled));
    assert_eq!(cancelled.tokens, script[..2]);
}

#[test]
fn dropping_a_generation_cancels_it() {
    let bench = Bench::spelling(&letters("ab"));
    let generation = bench.start(background(request(&[HOLD, TokenId(1)])));
    bench.hold.wait_until_reached(1);
    drop(generation);
    bench.hold.let_go();
    // Without an end, letters would go on to the context's.
    assert_eq!(bench.answer(spell()).text(), "ab");
    assert_eq!(bench.rows(), 4);
}

#[test]
fn text_held_back_comes_with_a_cancellation() {
    let bench = Bench::spelling(&[letters("abc"), vec![HOLD]].concat());
    let mut request = background(spell());
    request.stop.stop = vec!["bcd".to_owned()];
    let generation = bench.start(request);
    bench.hold.wait_until_reached(1);
    generation.cancel();
    bench.hold.let_go();
    let cancelled = answer(generation);
    assert_eq!(cancelled.texts, ["a", "", "", "", "bc"]);
    assert_eq!(cancelled.reason(), FinishReason::Cancelled);
}

#[test]
fn cancelling_what_has_ended_does_nothing() {
    let bench = Bench::spelling(&letters("ab"));
    let mut generation = bench.start(spell());
    while generation.next_blocking().is_some() {}
    generation.cancel();
    drop(generation);
    assert_eq!(bench.answer(spell()).text(), "ab");
}
