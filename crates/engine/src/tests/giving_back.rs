//! Passes that leave their lanes while weights are read.

use super::*;
use crate::fake_model::HOLD;

fn setup_with_disk() -> Setup {
    Setup { disk: Some(OnDisk { missing: 0.5, bytes_per_s: 1e9 }), ..setup() }
}

fn model() -> FakeModel {
    FakeModel { script: letters("abcdefgh"), ..FakeModel::new(1000, 100) }
}

fn given_back(bench: &Bench) -> usize {
    bench.runtime.backend().given_back.load(Ordering::Relaxed)
}

#[test]
fn a_pass_that_is_alone_keeps_its_lanes() {
    let bench = Bench::with(model(), &setup_with_disk());
    assert_eq!(bench.answer(spell()).text(), "abcdefgh");
    assert_eq!(given_back(&bench), 0);
}

#[test]
fn passes_leave_their_lanes_to_each_other() {
    let bench = Bench::with(model(), &setup_with_disk());
    let held = bench.start(background(request(&[HOLD, SPELL])));
    bench.hold.wait_until_reached(1);
    let person = bench.start(spell());
    bench.hold.let_go();
    assert_eq!((answer(person).text(), answer(held).text()), ("abcdefgh".to_owned(), "abcdefgh".to_owned()));
    assert!(given_back(&bench) > 2, "{}", given_back(&bench));
}

#[test]
fn a_pass_that_waits_is_given_up_when_nobody_wants_it() {
    let bench = Bench::with(model(), &setup_with_disk());
    let held = bench.start(background(request(&[HOLD, TokenId(0)])));
    bench.hold.wait_until_reached(1);
    let others: Vec<_> = (0..4).map(|_| bench.start(hashed(&[TokenId(1), TokenId(2)], 1000))).collect();
    bench.hold.let_go();
    others.iter().for_each(Generation::cancel);
    held.cancel();
    for generation in others.into_iter().chain([held]) {
        assert_eq!(answer(generation).reason(), FinishReason::Cancelled);
    }
    assert_eq!(bench.answer(spell()).text(), "abcdefgh");
    assert_eq!(bench.stats().running, 0);
}
