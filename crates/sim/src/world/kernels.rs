//! Kernels and passes: what is launched, how it ends, and what is left of a pass that does not.

use super::VirtualWorld;
use crate::answers::Answers;
use crate::disk::Stop;
use crate::lanes::{Warmth, Way};
use crate::passes::Ended;
use duet_scheduler::{Completes, Event, Kernel, Member, Outcome, PassId, Yields};
use duet_types::{KernelId, LaneId, LaneSet, Nanos, RequestId, Stage, Tokens};

impl<A: Answers> VirtualWorld<A> {
    pub(super) fn launch(&mut self, lanes: LaneSet, kernel: Kernel) {
        if self.passes.begins(&kernel) {
            self.begin_pass(&kernel);
        }
        self.passes.launch(&kernel, self.nodes.in_pass_of(kernel.net()));
        for member in &kernel.members {
            let state = self.requests.get_mut(&member.request);
            let state = state.unwrap_or_else(|| panic!("a kernel for {}, which is released", member.request));
            state.kernels += 1;
        }
        let wanted = kernel.members.iter().any(|member| !self.requests[&member.request].cancelled);
        assert!(wanted, "kernel {} is for requests that were all cancelled", kernel.id);
        let rows: Tokens = kernel.members.iter().map(Member::len).sum();
        // A graph takes all rows of its prompt, or, chunks having gone before, those that remain.
        let whole = kernel.rows == (0..rows.0);
        let remainder = kernel.rows.end == rows.0 && kernel.rows.start == rows.0 - rows.0 % self.chunk.0;
        let warm =
            (whole || remainder) && kernel.members.iter().all(|member| self.compiler.is_ready(member.request, rows));
        self.kernels += 1;
        self.watch(&kernel);
        let slowdown = self.graphs.as_mut().map_or(1.0, |graphs| graphs.launch(lanes, &kernel));
        let warmth = if warm { Warmth::Warm } else { Warmth::Cold };
        let stop = self.disk.stop(&kernel);
        let end = stop.map_or(kernel.nodes.end, |stop| stop.node);
        self.stops.extend(stop.map(|stop| (kernel.id, stop)));
        let way = Way { nodes: kernel.nodes.start..end, warmth, slowdown, masks: self.masks(&kernel, end) };
        let (id, waited) = (kernel.id, self.lanes.launch(self.now, lanes, kernel, &way));
        self.waited.extend((waited > Nanos::ZERO).then_some((id, waited)));
    }

    /// How long the masks take that a kernel's end waits for, if it goes as far as node `end`: those of all members are made one
    /// after the other, from when the kernel begins.
    fn masks(&self, kernel: &Kernel, end: usize) -> Nanos {
        if kernel.completes != Completes::Pass || end < kernel.nodes.end {
            return Nanos::ZERO;
        }
        let yielding = kernel.members.iter().filter(|member| member.yields == Yields::Token);
        yielding.fold(Nanos::ZERO, |all, member| all + self.client(member.request).masks)
    }

    /// Lets the watchdog wait for a kernel that will never end.
    pub(super) fn watch(&mut self, kernel: &Kernel) {
        if kernel.members.iter().any(|member| self.client(member.request).hanging.affects(self.ordinal(member.request)))
        {
            let patience = Nanos((kernel.predicted.0 as f64 * self.hang_timeout) as u64);
            self.watchdog.watch(kernel.id, self.now + patience);
            self.hangs += 1;
        }
    }

    /// The number of a request's kernel that was launched last, counted from 0.
    pub(super) fn ordinal(&self, request: RequestId) -> u32 {
        self.requests.get(&request).map_or(0, |state| state.kernels - 1)
    }

    pub(super) fn begin_pass(&mut self, kernel: &Kernel) {
        for member in &kernel.members {
            let request = member.request;
            let state = self.requests.get(&request).unwrap_or_else(|| panic!("a pass of {request}, which is released"));
            assert!(!state.cancelled, "a pass of {request}, which was cancelled");
            let known = self.client(request).prompt + state.generated;
            assert_eq!(member.rows.start, self.kv.computed(request), "where the rows of {request} begin");
            // A draft follows the last token, as if it were known.
            let end = if member.stage == Stage::Verify { member.rows.start + Tokens(1) } else { member.rows.end };
            assert!(!member.is_empty() && end <= known, "{request} has no rows {:?}", member.rows);
            assert_eq!(member.yields == Yields::Token, end == known, "what the rows of {request} yield");
            assert_eq!(member.class, self.client(request).class, "the class of {request}");
            if let Some(old) = self.passes.pass_of(request) {
                self.leave(old);
            }
            if member.net.is_decoder() {
                self.kv.reserve(request, member.rows.end);
            }
        }
        self.answers.begins(kernel.pass, &kernel.members);
    }

    /// Gives a pass up.
    pub(super) fn undo(&mut self, pass: PassId) {
        self.disk.forget(pass);
        self.passes.undo(pass);
        self.answers.undone(pass);
    }

    /// A pass is given up between its kernels, and no member was spilled or discarded: allowed if nobody wants it.
    pub(super) fn leave(&mut self, pass: PassId) {
        let (members, runs) = self.passes.members(pass);
        let wanted = |member: &Member| self.requests.get(&member.request).is_some_and(|state| !state.cancelled);
        assert!(!runs, "pass {pass} is given up while a kernel of it is on a lane");
        assert!(!members.iter().any(wanted), "pass {pass} is given up, and nothing failed");
        self.undo(pass);
    }

    pub(super) fn kernel_ended(&mut self, id: KernelId) -> Event {
        let kernel = self.lanes.end(self.now, id);
        self.left_device(id);
        let (stop, waited) = (self.stops.remove(&id), self.waited.remove(&id));
        let fails = |member: &Member| self.client(member.request).failing.affects(self.ordinal(member.request));
        if kernel.members.iter().any(fails) {
            self.undo(kernel.pass);
            return Event::KernelFailed { kernel: id };
        }
        if let Some(Stop { node, about, takes }) = stop {
            if self.passes.waits(&kernel, node) {
                let nodes = kernel.nodes.start..node;
                if !nodes.is_empty() {
                    self.answers.ran(&Kernel { nodes, completes: Completes::Span, ..kernel.clone() });
                }
                self.schedule(self.now + takes, Event::DataReady { pass: kernel.pass });
            }
            return Event::KernelDone { kernel: id, outcome: Outcome::Waits { node, about } };
        }
        self.answers.ran(&kernel);
        let outcome = match self.passes.done(&kernel, self.nodes.in_pass_of(kernel.net())) {
            Ended::GoesOn => Outcome::Progressed,
            Ended::Complete(members) => {
                self.disk.forget(kernel.pass);
                let mut generated = self.answers.complete(kernel.pass, &members);
                if let (Some(first), Some(waited)) = (generated.first_mut(), waited) {
                    first.waited = waited;
                }
                for new in &generated {
                    self.requests.get_mut(&new.request).expect("it runs").generated += new.tokens;
                }
                for member in members.iter().filter(|member| member.net.is_decoder()) {
                    let new = generated.iter().find(|new| new.request == member.request);
                    let new = new.map_or(Tokens::ZERO, |new| new.tokens);
                    self.kv.computed_to(member.request, member.computed(new));
                    self.lanes.copies.computed(member.request, member.computed(new));
                }
                Outcome::Tokens(generated)
            }
        };
        Event::KernelDone { kernel: id, outcome }
    }

    /// Somebody looks whether a lost lane works again. One that never will gives no answer, so that time comes to an end.
    pub(super) fn probe(&mut self, lane: LaneId) {
        let Some(&(at, _)) = self.works_again.iter().find(|(_, of)| *of == lane) else { return };
        let event = if at <= self.now { Event::LaneBack { lane } } else { Event::LaneLost { lane } };
        self.schedule(self.now + PROBE, event);
    }

    /// A kernel hangs: its lane is given up if there is another one, and itself if there is not.
    pub(super) fn hung(&mut self, id: KernelId) -> Event {
        let lane = self.lanes.leader(id);
        if self.lanes.can_lose(lane) {
            return Event::LaneLost { lane };
        }
        self.watchdog.forget(id);
        let kernel = self.lanes.end(self.now, id);
        self.left_device(id);
        self.undo(kernel.pass);
        Event::KernelFailed { kernel: id }
    }

    /// No graph is in use by this kernel any more.
    pub(super) fn left_device(&mut self, kernel: KernelId) {
        self.graphs.iter_mut().for_each(|graphs| graphs.ended(kernel));
    }
}

/// A probe of a lane runs a small kernel.
const PROBE: Nanos = Nanos(1_000_000);
