//! Every checker can fail: policies that break the rule that they are to keep, and runs that no scheduler would make.

use duet_driver::Observer;
use duet_scheduler::policy::{Decision, Policy, PolicyName};
use duet_scheduler::{
    Command, Completes, End, Event, Generated, HeadRows, Kernel, Member, OnMiss, Outcome, Pages, PassId, Phase, Reason,
    Request, RequestView, Span, View, Yields,
};
use duet_sim::checkers::{Books, Checkers, Rule};
use duet_sim::{Scenario, fuzz};
use duet_types::{
    Class, FinishReason, FlowId, Instant, KernelId, LaneId, LaneSet, Nanos, Net, RequestId, Stage, Tokens,
};

/// What a policy breaks.
fn broken_by(policy: impl Policy + 'static, scenario: &str) -> Option<Rule> {
    let scenario: Scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
    fuzz::check(&scenario, Box::new(policy)).err().map(|broken| broken.rule)
}

/// Runs the first request by some order to the end of its next pass, then the next.
#[derive(Debug)]
struct OneByOne {
    rank: fn(&RequestView<'_>) -> (u64, u64),
}

impl Policy for OneByOne {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let next = view.requests().min_by_key(self.rank).filter(|_| view.passes().next().is_none())?;
        match next.phase() {
            Phase::Queued | Phase::Spilled => Some(Decision::Begin(next.id())),
            Phase::Ready => {
                let member = next.member(view.config().limits.prefill_rows);
                let span = Span { nodes: 0..view.config().heg.nodes(), rows: 0..member.len().0 };
                let lanes = LaneSet::from_iter([view.decode_lane()]);
                Some(Decision::Start { members: vec![member], span, lanes, reason: Reason::FirstCome })
            }
            Phase::Restoring | Phase::InPass(_) | Phase::Spilling => None,
        }
    }
}

/// Another policy, but for some decisions that it forgets.
#[derive(Debug)]
struct Forgetful {
    policy: Box<dyn Policy>,
    forgets: fn(&View<'_>, &Decision) -> bool,
}

impl Policy for Forgetful {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let forgets = self.forgets;
        self.policy.decide(view).filter(|decision| !forgets(view, decision))
    }
}

#[test]
fn the_oldest_first_breaks_nothing() {
    let oldest = OneByOne { rank: |request| (0, request.id().0) };
    let scenario = "single  policy serial
         at 0ms  A  proactive  prompt 50  output 3
         at 1ms  B  reactive   prompt 50  output 3";
    assert_eq!(broken_by(oldest, scenario), None);
}

#[test]
fn the_youngest_first_breaks_the_order_of_equals() {
    let youngest = OneByOne { rank: |request| (0, u64::MAX - request.id().0) };
    let scenario = "single
         at 0ms  A  proactive  prompt 50  output 3
         at 1ms  B  proactive  prompt 50  output 3
         at 1ms  C  proactive  prompt 50  output 3";
    assert_eq!(broken_by(youngest, scenario), Some(Rule::Order));
}

/// Begins everybody at once, and reads the shortest prompt, however long the others have waited.
#[derive(Debug)]
struct ShortestForGood(OneByOne);

impl Policy for ShortestForGood {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let queued = view.requests().find(|request| request.phase() == Phase::Queued);
        queued.map(|request| Decision::Begin(request.id())).or_else(|| self.0.decide(view))
    }
}

/// C is shorter than B, but by then B has waited for so long that it holds its place.
#[test]
fn the_shortest_first_for_good_breaks_the_order() {
    let shortest = || ShortestForGood(OneByOne { rank: |request| (0, request.rows_left().0.into()) });
    let scenario = |overtaking: &str| {
        format!(
            "npu-igpu  without preemption  overtaking {overtaking}
             at 0ms  A  reactive  prompt 100  output 1
             at 1ms  B  reactive  prompt 200  output 1
             at 2ms  C  reactive  prompt 20   output 1"
        )
    };
    assert_eq!(broken_by(shortest(), &scenario("50ms")), None);
    assert_eq!(broken_by(shortest(), &scenario("5ms")), Some(Rule::Order));
}

#[test]
fn background_first_breaks_the_reactive_bound() {
    let background = OneByOne { rank: |request| (u64::from(request.class() == Class::Reactive), request.id().0) };
    let scenario = "single  policy duet
         at 0ms  A  proactive  prompt 50  output 30
         at 1ms  B  reactive   prompt 50  output 3";
    assert_eq!(broken_by(background, scenario), Some(Rule::ReactiveWait));
}

#[test]
fn reactive_always_breaks_the_share_of_overdue_work() {
    let rank = |request: &RequestView<'_>| match request.phase() {
        Phase::Restoring => (2, 0),
        _ => (request.class() as u64, request.id().0),
    };
    let scenario = "single  policy duet  age 1ms  share 0.2
         at 0ms  A  proactive  prompt 50  output 30
         at 1ms  B  reactive   prompt 50  output 90";
    assert_eq!(broken_by(OneByOne { rank }, scenario), Some(Rule::ProactiveProgress));
}

#[test]
fn a_machine_that_rests_is_seen() {
    let duet = PolicyName::Duet.policy();
    let forgets = |view: &View<'_>, decision: &Decision| {
        matches!(decision, Decision::Launch { .. } | Decision::Start { .. }) && view.now() > Instant(5_000_000)
    };
    let scenario = "cpu
         at 0ms  A  proactive  prompt 50  output 30";
    assert_eq!(broken_by(Forgetful { policy: duet, forgets }, scenario), Some(Rule::Idleness));
}

#[test]
fn one_lane_that_rests_is_seen() {
    let agent_xpu = PolicyName::AgentXpu.policy();
    let forgets = |view: &View<'_>, decision: &Decision| {
        let decodes = matches!(decision, Decision::Start { members, .. } if members[0].stage == Stage::Decode);
        decodes && view.running().next().is_some()
    };
    let scenario = "npu-igpu  policy agent-xpu  without warm-up  without remainder-deferral
         at 0ms  A  reactive  prompt 10   output 30
         at 1ms  B  reactive  prompt 600  output 1";
    assert_eq!(broken_by(Forgetful { policy: agent_xpu, forgets }, scenario), Some(Rule::Idleness));
}

#[test]
fn a_panic_is_seen() {
    let fragile =
        Forgetful { policy: PolicyName::Duet.policy(), forgets: |view, _| panic!("it broke at {:?}", view.now()) };
    let scenario = "cpu
         at 1ms  A  proactive  prompt 50  output 3";
    assert_eq!(broken_by(fragile, scenario), Some(Rule::Soundness));
}

/// A run that is written down event by event, of one request.
struct Forged {
    checkers: Checkers,
    now: Instant,
    used: usize,
    live: usize,
}

impl Forged {
    /// Request 0 is submitted, and its KV in place.
    fn begun() -> Self {
        let scenario = "single  pages 50
             at 0ms  A  proactive  prompt 20  output 1";
        let scenario: Scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
        let mut forged = Self { checkers: Checkers::new(&scenario), now: Instant(0), used: 3, live: 1 };
        let request = Request {
            id: RequestId(0),
            flow: FlowId(0),
            class: Class::Proactive,
            prompt: Tokens(20),
            prefix: None,
            head: HeadRows::Last,
            net: Net::Decoder,
        };
        forged.event(Event::Submitted(request));
        forged.command(Command::Restore(RequestId(0)));
        forged.event(Event::Restored { request: RequestId(0), cached: Tokens(0), source: None });
        forged.command(launch(0));
        forged.settled();
        assert_eq!(forged.broken(), None);
        forged
    }

    fn event(&mut self, event: Event) {
        self.now = self.now + Nanos(1_000);
        self.checkers.event(self.now, &event);
    }

    fn command(&mut self, command: Command) {
        self.checkers.command(self.now, &command);
    }

    fn settled(&mut self) {
        let ledger = Pages { capacity: 50, used: 3, kept: if self.live == 0 { 3 } else { 0 }, on_disk: 0 };
        let books = Books { used: self.used, on_disk: 0, live: self.live, ledger };
        self.checkers.settled(self.now, &books);
    }

    fn broken(&self) -> Option<Rule> {
        self.checkers.broken().map(|broken| broken.rule)
    }
}

/// All of request 0's prompt.
fn launch(kernel: u64) -> Command {
    let member = Member {
        request: RequestId(0),
        class: Class::Proactive,
        stage: Stage::Prefill,
        rows: Tokens(0)..Tokens(20),
        yields: Yields::Token,
        head: HeadRows::Last,
        net: Net::Decoder,
    };
    let (id, pass) = (KernelId(kernel), PassId(kernel));
    let (nodes, rows, completes, predicted) = (0..7, 0..20, Completes::Pass, Nanos(1_000));
    let (on_miss, shares) = (OnMiss::Waits, Vec::new());
    let kernel = Kernel { id, pass, members: vec![member], nodes, rows, completes, predicted, on_miss, shares };
    Command::Launch { lanes: LaneSet::from_iter([LaneId(0)]), kernel, reason: Reason::Background }
}

/// The last token of request 0.
fn last_token() -> Event {
    let token = Generated::one(RequestId(0), Some(FinishReason::Stop));
    Event::KernelDone { kernel: KernelId(0), outcome: Outcome::Tokens(vec![token]) }
}

fn release(end: End) -> Command {
    Command::Release { request: RequestId(0), end }
}

#[test]
fn a_request_that_ends_well_breaks_nothing() {
    let mut forged = Forged::begun();
    forged.event(last_token());
    forged.command(release(End::Finished(FinishReason::Stop)));
    forged.live = 0;
    forged.settled();
    forged.checkers.ended(forged.now);
    assert_eq!(forged.broken(), None);
}

#[test]
fn a_kernel_for_a_request_that_ended_is_seen() {
    let mut forged = Forged::begun();
    forged.event(last_token());
    forged.command(release(End::Finished(FinishReason::Stop)));
    forged.command(launch(1));
    assert_eq!(forged.broken(), Some(Rule::Silence));
}

#[test]
fn a_token_for_a_request_that_ended_is_seen() {
    let mut forged = Forged::begun();
    forged.event(Event::Cancelled(RequestId(0)));
    forged.command(release(End::Finished(FinishReason::Cancelled)));
    forged.event(last_token());
    assert_eq!(forged.broken(), Some(Rule::Silence));
}

#[test]
fn a_pass_of_a_cancelled_request_is_seen() {
    let mut forged = Forged::begun();
    forged.event(Event::KernelFailed { kernel: KernelId(0) });
    forged.event(Event::Cancelled(RequestId(0)));
    forged.command(launch(1));
    assert_eq!(forged.broken(), Some(Rule::Silence));
}

#[test]
fn a_request_that_failed_for_no_reason_is_seen() {
    let mut forged = Forged::begun();
    forged.event(Event::LaneLost { lane: LaneId(0) });
    forged.command(release(End::Failed));
    assert_eq!(forged.broken(), Some(Rule::Endings));
}

#[test]
fn a_request_that_is_not_released_is_seen() {
    let mut forged = Forged::begun();
    forged.event(last_token());
    forged.settled();
    assert_eq!(forged.broken(), Some(Rule::Endings));
}

#[test]
fn a_request_that_never_ends_is_seen() {
    let mut forged = Forged::begun();
    forged.checkers.ended(forged.now);
    assert_eq!(forged.broken(), Some(Rule::Endings));
}

#[test]
fn pages_that_the_scheduler_does_not_know_of_are_seen() {
    let mut forged = Forged::begun();
    forged.used = 4;
    forged.settled();
    assert_eq!(forged.broken(), Some(Rule::Conservation));
}

#[test]
fn kv_that_stays_behind_is_seen() {
    let mut forged = Forged::begun();
    forged.event(last_token());
    forged.command(release(End::Finished(FinishReason::Stop)));
    forged.settled();
    assert_eq!(forged.broken(), Some(Rule::Conservation));
}
