//! Drift: a machine that is not as it was profiled, and how long its drafts are.

use duet_scheduler::machine::FewRows;
use duet_sim::{KernelLog, Scenario};
use duet_types::{Instant, Tokens};

/// What passes of up to two, up to four and more rows take, over one of one row.
fn few_rows(two: f32, four: f32, more: f32) -> FewRows {
    FewRows::new(std::array::from_fn(|place| match place {
        0 => 1.0,
        1 => two,
        2..=3 => four,
        _ => more,
    }))
}

/// Milliseconds of one stream, four of five of whose drafted tokens come true, on a machine that is profiled as one thing
/// and truly is another.
fn took(profiled: FewRows, truly: FewRows) -> f64 {
    let text = "single  policy duet
         at 0ms  A  reactive  prompt 64  output 1000  drafts 800";
    let mut scenario: Scenario = text.parse().unwrap();
    scenario.config.limits.draft = [Tokens(7); 2];
    scenario.config.machine.lanes[0].anchors.few_rows = profiled;
    scenario.truth.machine.lanes[0].anchors.few_rows = truly;
    let ran = scenario.run(KernelLog::default());
    let last = ran.observer.done().last().unwrap();
    (last.at + last.took - Instant::default()).as_secs_f64() * 1e3
}

/// By the profile four rows are as quick as one, and there is no reason for more. In truth they take as long as many.
#[test]
fn drafts_become_longer_where_a_short_one_turns_out_to_save_nothing() {
    let (profiled, truly) = (few_rows(1.0, 1.0, 1.6), few_rows(1.0, 1.6, 1.7));
    let (well, badly) = (took(truly, truly), took(profiled, truly));
    assert!(badly < 1.05 * well, "{badly:.1} ms in place of {well:.1}");
}
