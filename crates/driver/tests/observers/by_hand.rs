//! Events and commands in one line each.

use duet_driver::Observer;
use duet_scheduler::{
    Command, Completes, Event, Generated, HeadRows, Kernel, Member, OnMiss, Outcome, PassId, Reason, Request, Yields,
};
use duet_types::{
    Class, FinishReason, FlowId, Instant, KernelId, LaneId, LaneSet, Nanos, Net, RequestId, Stage, Tokens,
};

/// Hands hand-made events and commands to an observer, at times in microseconds.
pub(crate) struct ByHand<O> {
    pub(crate) observer: O,
}

impl<O: Observer> ByHand<O> {
    pub(crate) fn event(&mut self, at_us: u64, event: Event) {
        self.observer.event(Instant(at_us * 1000), &event);
    }

    pub(crate) fn command(&mut self, at_us: u64, command: Command) {
        self.observer.command(Instant(at_us * 1000), &command);
    }

    /// A request comes and has its (empty) KV.
    pub(crate) fn arrive(&mut self, at_us: u64, request: u64, class: Class, prompt: u32) {
        let (id, flow) = (RequestId(request), FlowId(100 + request));
        self.event(
            at_us,
            Event::Submitted(Request {
                id,
                flow,
                class,
                prompt: Tokens(prompt),
                prefix: None,
                head: HeadRows::Last,
                net: Net::Decoder,
            }),
        );
        self.command(at_us, Command::Restore(id));
        self.event(at_us, Event::Restored { request: id, cached: Tokens::ZERO, source: None });
    }

    /// A kernel is launched that is a whole pass, predicted to take 100 us.
    pub(crate) fn launch(&mut self, at_us: u64, kernel: u64, lanes: &[u8], members: Vec<Member>) {
        let kernel = whole_pass(kernel, members);
        self.launch_kernel(at_us, kernel, lanes);
    }

    pub(crate) fn launch_kernel(&mut self, at_us: u64, kernel: Kernel, lanes: &[u8]) {
        let lanes = LaneSet::from_iter(lanes.iter().map(|&lane| LaneId(lane)));
        self.command(at_us, Command::Launch { lanes, kernel, reason: Reason::FirstCome });
    }

    /// A kernel that completes its pass ends: these requests have a token.
    pub(crate) fn done(&mut self, at_us: u64, kernel: u64, tokens: &[u64]) {
        let tokens = tokens.iter().map(|&request| Generated::one(RequestId(request), None));
        let outcome = Outcome::Tokens(tokens.collect());
        self.event(at_us, Event::KernelDone { kernel: KernelId(kernel), outcome });
    }

    pub(crate) fn stop(&mut self, at_us: u64, request: u64) {
        let end = duet_scheduler::End::Finished(FinishReason::Stop);
        self.command(at_us, Command::Release { request: RequestId(request), end });
    }
}

/// Some positions of a request.
pub(crate) fn member(request: u64, class: Class, stage: Stage, rows: std::ops::Range<u32>) -> Member {
    let rows = Tokens(rows.start)..Tokens(rows.end);
    Member {
        request: RequestId(request),
        class,
        stage,
        rows,
        yields: Yields::Token,
        head: HeadRows::Last,
        net: Net::Decoder,
    }
}

/// A kernel that is all of its pass, which has its number.
pub(crate) fn whole_pass(kernel: u64, members: Vec<Member>) -> Kernel {
    let rows = members.iter().map(|member| member.len().0).sum();
    Kernel {
        id: KernelId(kernel),
        pass: PassId(kernel),
        members,
        nodes: 0..7,
        rows: 0..rows,
        completes: Completes::Pass,
        predicted: Nanos(100_000),
        on_miss: OnMiss::Waits,
        shares: Vec::new(),
    }
}
