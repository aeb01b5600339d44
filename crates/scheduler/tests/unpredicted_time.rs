//! What a draft model takes at the end of a kernel, and what masks are waited for there, is not taken for a machine that has become slow.

use duet_scheduler::heg::{SequenceWise, TokenWise};
use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, PerRow};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{
    Command, Completes, Event, Generated, HeadRows, Heg, Kernel, Limits, Machine, Mechanisms, MemoryLimits, Outcome,
    Request, Scheduler, SchedulerConfig, StatePages, WindowPages, Yields, decode_share, row_share,
};
use duet_types::{Class, FlowId, Instant, LaneSet, Nanos, Net, RequestId, Tokens};

fn config() -> SchedulerConfig {
    let anchors = Anchors {
        macs_per_s: 1e9,
        attention_macs_per_s: 1e9,
        bytes_per_s: 1e9,
        launch: Nanos::ZERO,
        exposed: 0.0,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    };
    // A megabyte of weights a node is a millisecond, and so are a million products.
    let linear = TokenWise { macs_per_row: 1e5, weight_bytes: 1e6, row_bytes: 0.0, routed: None };
    let attention = SequenceWise { macs_per_pair: 0.0, bytes_per_position: 0.0, row_bytes: 0.0, windowed: None };
    SchedulerConfig {
        machine: Machine::of(vec![Lane::new("cpu", Capabilities::CORES, anchors)]),
        heg: Heg { layers: 2, qkv: linear, ffn: linear, attention, head: linear, experts: None, for_head: None },
        limits: Limits::default(),
        memory: MemoryLimits {
            page: Tokens(64),
            pages: 100,
            disk_pages: 0,
            states: StatePages::NONE,
            windows: WindowPages::NONE,
        },
        mechanisms: Mechanisms::ALL,
        encoder: None,
        graphs: None,
    }
}

/// The kernels of a request of so many tokens, each of which is `drafting` longer than predicted, and `told` says why.
fn kernels(tokens: usize, drafting: Nanos, told: impl Fn(Generated) -> Generated) -> Vec<Kernel> {
    let mut scheduler = Scheduler::new(config(), PolicyName::Duet.policy());
    let (id, mut now, mut kernels) = (RequestId(0), Instant::default(), Vec::new());
    let request = Request {
        id,
        flow: FlowId(0),
        class: Class::Reactive,
        prompt: Tokens(32),
        prefix: None,
        head: HeadRows::Last,
        net: Net::Decoder,
    };
    let mut event = Some(Event::Submitted(request));
    while let Some(happens) = event.take() {
        scheduler.handle(now, happens);
        while let Some(command) = scheduler.poll() {
            match command {
                Command::Restore(request) => {
                    event = Some(Event::Restored { request, cached: Tokens::ZERO, source: None });
                }
                Command::Launch { kernel, .. } if kernels.len() < tokens => {
                    now = now + kernel.predicted + drafting;
                    let outcome = match kernel.completes {
                        Completes::Span => Outcome::Progressed,
                        Completes::Pass => Outcome::Tokens(vec![told(Generated::one(id, None))]),
                    };
                    event = Some(Event::KernelDone { kernel: kernel.id, outcome });
                    kernels.push(kernel);
                }
                _ => {}
            }
        }
    }
    kernels
}

#[test]
fn time_that_a_draft_model_or_masks_took_changes_no_prediction() {
    let took = Nanos(5_000_000);
    let predicted = |told: fn(Generated, Nanos) -> Generated| {
        let kernels = kernels(100, took, |generated| told(generated, took));
        assert_eq!(kernels.len(), 100);
        [&kernels[10], &kernels[99]].map(|kernel| kernel.predicted)
    };
    let [first, last] = predicted(|generated, drafting| Generated { drafting, ..generated });
    assert_eq!(first, last);
    let [first, last] = predicted(|generated, waited| Generated { waited, ..generated });
    assert_eq!(first, last);
    let [first, last] = predicted(|generated, _| generated);
    assert!(last > first, "time that nobody explains is the machine's: {first:?} {last:?}");
}

#[test]
fn what_rows_cost_can_be_asked_of_a_pass_that_has_ended() {
    let (config, lanes) = (config(), LaneSet::first(1));
    let kernels = kernels(3, Nanos::ZERO, |generated| generated);
    let [prompt, token] = [&kernels[0], &kernels[2]].map(|kernel| kernel.members.as_slice());
    assert_eq!(prompt[0].yields, Yields::Token, "the prompt is one chunk");
    let share = decode_share(&config, prompt, lanes);
    assert!(share > 0.2 && share < 1.0, "{share}: a token's pass is shorter than the prompt's");
    assert_eq!(decode_share(&config, token, lanes), 1.0);
    // Weights take ten times as long to read as a row to compute.
    let row = row_share(&config, token, lanes);
    assert!((0.0..0.2).contains(&row), "{row}");
    assert_eq!(row_share(&config, &[], lanes), 0.0);
}
