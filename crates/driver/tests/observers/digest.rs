//! The digest stands where the scheduler does, and its facts are what happened.

use crate::by_hand::{ByHand, member, whole_pass};
use crate::world::{Client, Faults, config, run};
use duet_driver::{Digest, Fact, Found, KernelEnd, Observer, Origin};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, Event, Line, Source};
use duet_types::Class::{Proactive, Reactive};
use duet_types::Stage::{Decode, Prefill};
use duet_types::{Instant, KernelId, LaneId, Nanos, RequestId, Tokens};

/// Keeps all facts, in their order.
#[derive(Default)]
struct Facts {
    digest: Digest,
    facts: Vec<Fact>,
}

impl Observer for Facts {
    fn event(&mut self, now: Instant, event: &Event) {
        self.facts.extend(self.digest.event(now, event));
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.facts.extend(self.digest.command(now, command));
    }
}

fn facts() -> ByHand<Facts> {
    ByHand { observer: Facts::default() }
}

fn count(facts: &[Fact], wanted: impl Fn(&Fact) -> bool) -> usize {
    facts.iter().filter(|fact| wanted(fact)).count()
}

/// A mix in which requests wait, share passes, are preempted, spilled, cancelled and undone.
fn clients() -> Vec<Client> {
    (0..40)
        .map(|index| Client {
            at_us: index * 700,
            class: if index % 3 == 0 { Reactive } else { Proactive },
            prompt: 10 + (index as u32 * 37) % 150,
            answer: 1 + (index as u32 * 13) % 30,
            cancels_at_us: (index % 7 == 3).then_some(index * 700 + 2_000 * (index % 5)),
        })
        .collect()
}

#[test]
fn it_stands_where_the_scheduler_does() {
    for policy in PolicyName::ALL {
        check_standing(policy, 1000);
    }
}

/// KV goes to disk and comes back, and what cannot go is discarded.
#[test]
fn it_stands_where_the_scheduler_does_when_memory_is_short() {
    for policy in [PolicyName::Duet, PolicyName::AgentXpu, PolicyName::Restart] {
        let facts = check_standing(policy, 40);
        assert!(count(&facts, |fact| matches!(fact, Fact::Spilled { .. })) > 0, "{policy}");
    }
}

/// Compares the two after every event, without faults and with some. Returns all facts.
fn check_standing(policy: PolicyName, pages: usize) -> Vec<Fact> {
    let faults =
        [Faults::default(), Faults { kernels: Some(17), spills: None }, Faults { kernels: Some(31), spills: Some(2) }];
    let run = |faults| {
        let observer = run(policy, config(pages), &clients(), faults, Facts::default(), |scheduler, facts| {
            for class in [Reactive, Proactive] {
                for line in [Line::Queued, Line::Prefill, Line::Decode, Line::Away] {
                    let waiting = facts.digest.waiting(line, class);
                    assert_eq!(waiting, scheduler.queue_len(line, class), "{policy} {faults:?} {line:?} {class:?}");
                }
            }
        });
        let facts = observer.facts;
        assert_eq!(count(&facts, |fact| matches!(fact, Fact::Arrived { .. })), clients().len(), "{policy}");
        assert_eq!(count(&facts, |fact| matches!(fact, Fact::Ended { .. })), clients().len(), "{policy}");
        facts
    };
    faults.into_iter().flat_map(run).collect()
}

#[test]
fn what_is_discarded_is_told_with_what_it_cost() {
    let mut run = facts();
    run.arrive(0, 1, Proactive, 8);
    run.launch(10, 0, &[0], vec![member(1, Proactive, Prefill, 0..8)]);
    run.done(110, 0, &[1]);
    run.command(120, Command::Discard(RequestId(1)));
    let Facts { facts, digest } = run.observer;
    assert!(matches!(facts.last(), Some(Fact::Discarded { computed: Tokens(8), .. })), "{facts:?}");
    assert_eq!(digest.waiting(Line::Queued, Proactive), 1);
}

#[test]
fn waiting_ends_with_the_first_kernel_and_tokens_have_gaps() {
    let mut run = facts();
    run.arrive(0, 1, Proactive, 8);
    run.launch(10, 0, &[0], vec![member(1, Proactive, Prefill, 0..8)]);
    run.arrive(30, 2, Reactive, 4);
    run.done(110, 0, &[1]);
    run.launch(110, 1, &[0], vec![member(2, Reactive, Prefill, 0..4), member(1, Proactive, Decode, 8..9)]);
    run.done(260, 1, &[2, 1]);
    run.stop(260, 1);
    let Facts { facts, digest } = run.observer;

    let began = |fact: &Fact| match *fact {
        Fact::Began { subject, waited, found, .. } => Some((subject.request.0, waited, found)),
        _ => None,
    };
    let expected = [(1, Nanos(10_000), Found::NoBackground), (2, Nanos(80_000), Found::Background)];
    assert_eq!(facts.iter().filter_map(began).collect::<Vec<_>>(), expected);

    let token = |fact: &Fact| match *fact {
        Fact::Tokens { subject, gap, .. } => Some((subject.request.0, gap)),
        _ => None,
    };
    let expected = [(1, None), (2, None), (1, Some(Nanos(150_000)))];
    assert_eq!(facts.iter().filter_map(token).collect::<Vec<_>>(), expected);

    let riders = |fact: &Fact| match *fact {
        Fact::PassBegan { class, stage, rows, members, riders } => Some((class, stage, rows, members, riders)),
        _ => None,
    };
    let expected = [(Proactive, Prefill, Tokens(8), 1, 0), (Reactive, Prefill, Tokens(5), 2, 1)];
    assert_eq!(facts.iter().filter_map(riders).collect::<Vec<_>>(), expected);
    assert_eq!(digest.waiting(Line::Decode, Reactive), 1);
    assert_eq!(digest.waiting(Line::Decode, Proactive), 0);
    // The background rode along: nothing was taken from it.
    assert_eq!(count(&facts, |fact| matches!(fact, Fact::Preempted { .. })), 0);
}

#[test]
fn a_reactive_kernel_that_takes_a_lane_preempts_what_has_not_ended() {
    let mut run = facts();
    run.arrive(0, 1, Proactive, 8);
    run.arrive(0, 2, Proactive, 8);
    let both = vec![member(1, Proactive, Prefill, 0..8), member(2, Proactive, Prefill, 0..8)];
    run.launch(0, 0, &[0, 1], both);
    run.done(100, 0, &[1, 2]);
    run.stop(100, 1);
    run.arrive(100, 3, Reactive, 4);
    run.launch(100, 1, &[0, 1], vec![member(3, Reactive, Prefill, 0..4)]);
    run.done(200, 1, &[3]);
    // Again, but nothing of the background ran between.
    run.launch(200, 2, &[0, 1], vec![member(3, Reactive, Decode, 4..5)]);
    let preempted = run.observer.facts.iter().filter_map(|fact| match fact {
        Fact::Preempted { victims, by } => {
            Some((victims.iter().map(|victim| victim.request.0).collect::<Vec<_>>(), by.clone()))
        }
        _ => None,
    });
    assert_eq!(preempted.collect::<Vec<_>>(), [(vec![2], vec![RequestId(3)])]);
}

#[test]
fn a_pass_that_lost_a_kernel_is_undone_when_the_others_have_ended() {
    let mut run = facts();
    run.arrive(0, 1, Proactive, 8);
    let members = vec![member(1, Proactive, Prefill, 0..8)];
    for (kernel, rows) in [(0, 0..4), (1, 4..8)] {
        let part = duet_scheduler::Kernel {
            pass: duet_scheduler::PassId(0),
            nodes: 1..2,
            rows,
            completes: duet_scheduler::Completes::Span,
            ..whole_pass(kernel, members.clone())
        };
        run.launch_kernel(0, part, &[kernel as u8]);
    }
    run.event(50, Event::LaneLost { lane: LaneId(0) });
    assert_eq!(run.observer.digest.waiting(Line::Away, Proactive), 1);
    let outcome = duet_scheduler::Outcome::Progressed;
    run.event(90, Event::KernelDone { kernel: KernelId(1), outcome });
    assert_eq!(run.observer.digest.waiting(Line::Prefill, Proactive), 1);
    let ends = run.observer.facts.iter().filter_map(|fact| match fact {
        Fact::KernelEnded { launched, took, end } => Some((launched.kernel.id.0, *took, *end)),
        _ => None,
    });
    let expected = [(0, Nanos(50_000), KernelEnd::Failed), (1, Nanos(90_000), KernelEnd::Done)];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
    let begun = count(&run.observer.facts, |fact| matches!(fact, Fact::PassBegan { .. }));
    assert_eq!(begun, 1, "one pass, whose kernels ran side by side");
}

#[test]
fn kv_comes_from_where_it_was() {
    let mut run = facts();
    run.arrive(0, 1, Proactive, 8);
    run.command(1, Command::Spill(RequestId(1)));
    run.event(2, Event::Spilled { request: RequestId(1) });
    assert_eq!(run.observer.digest.waiting(Line::Queued, Proactive), 1);
    run.command(3, Command::Restore(RequestId(1)));
    run.event(4, Event::Restored { request: RequestId(1), cached: Tokens(5), source: None });
    run.stop(5, 1);
    // What it left is spilled, then forked, then taken over.
    run.command(6, Command::Spill(RequestId(1)));
    run.event(7, Event::Spilled { request: RequestId(1) });
    for (request, source) in
        [(2, Source::Forked(RequestId(1))), (3, Source::TakenOver(RequestId(1))), (4, Source::TakenOver(RequestId(9)))]
    {
        run.arrive(8, request, Reactive, 9);
        let request = RequestId(request);
        run.event(9, Event::Restored { request, cached: Tokens(5), source: Some(source) });
    }
    let from = run.observer.facts.iter().filter_map(|fact| match fact {
        Fact::Restored { from, .. } if *from != Origin::Nowhere => Some(*from),
        _ => None,
    });
    assert_eq!(from.collect::<Vec<_>>(), [Origin::Own, Origin::Disk, Origin::Disk, Origin::Memory]);
}
