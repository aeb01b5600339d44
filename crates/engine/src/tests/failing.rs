//! Panics and shutdown: who is told, and what goes on.

use super::*;
use crate::fake_model::{HOLD, PANIC};

/// The fake model panics in the last rank of the team while the others wait for it at a barrier.
#[test]
fn a_kernel_s_panic_ends_its_request_only() {
    let bench = Bench::spelling(&letters("ab"));
    for _ in 0..3 {
        let failed = bench.start(request(&[TokenId(0), PANIC]));
        let queued = bench.start(spell());
        let error = EngineError::Internal("a kernel panicked: a fake kernel met a 37".to_owned());
        assert_eq!(answer(failed).error(), &error);
        assert_eq!(answer(queued).text(), "ab");
    }
    // Only what the good ones kept.
    assert_eq!(bench.stats().flows_kept, 1);
    assert_eq!(bench.stats().kv_pages_used, 1);
}

#[test]
fn a_panic_in_decode_leaves_the_tokens_before_it() {
    let bench = Bench::spelling(&[letters("ab"), vec![PANIC], letters("c")].concat());
    let answer = bench.answer(spell());
    assert_eq!(answer.texts.concat(), "ab");
    assert!(matches!(answer.error(), EngineError::Internal(_)));
}

#[test]
fn a_stop_fails_what_is_open_and_joins_the_lanes() {
    let Bench { runtime, hold } = Bench::spelling(&letters("ab"));
    let start = |request| {
        let (id, events) = runtime.submit(request).unwrap();
        Generation { id, events, engine: runtime.canceller() }
    };
    let running = start(request(&[HOLD, TokenId(0)]));
    let queued = start(spell());
    hold.wait_until_reached(1);
    let stop = std::thread::spawn(move || drop(runtime));
    // At once, while the kernel of the other one still runs.
    assert_eq!(answer(queued).error(), &EngineError::ShuttingDown);
    hold.let_go();
    assert_eq!(answer(running).error(), &EngineError::ShuttingDown);
    stop.join().unwrap();
}

#[test]
fn a_generation_outlives_its_engine() {
    let bench = Bench::spelling(&letters("ab"));
    let generation = bench.start(spell());
    let late = bench.start(spell());
    assert_eq!(answer(generation).text(), "ab");
    drop(bench);
    late.cancel();
    let late = answer(late);
    assert!(late.end.is_ok() || late.error() == &EngineError::ShuttingDown);
}
