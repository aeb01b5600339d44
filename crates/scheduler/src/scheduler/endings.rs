//! Endings: of kernels, passes and requests, well or not.
//!
//! A kernel that failed breaks its pass: the pass is undone when none of its kernels is on a lane any more, its members
//! are where they were before it, and each is run again alone. What one of them has done wrong harms nobody else.

use super::Scheduler;
use crate::command::{Command, End, GraphId};
use crate::config::SchedulerConfig;
use crate::event::{Generated, Outcome};
use crate::health::Probed;
use crate::kernel::{Member, PassId, Span, Yields};
use crate::machine::Joins;
use crate::mechanism::Mechanism;
use crate::mirrors;
use crate::offer::Offer;
use crate::pass::{Broken, Pass};
use crate::reason::Reason;
use crate::request_table::{Company, Fate, Phase};
use duet_types::{Class, FinishReason, KernelId, LaneId, LaneSet, Nanos, NodeKind, RequestId, Stage, Tokens};

impl Scheduler {
    pub(super) fn kernel_done(&mut self, kernel: KernelId, outcome: Outcome) {
        if let Outcome::Waits { node, about } = outcome {
            return self.kernel_waits(kernel, node, about);
        }
        self.learn(kernel, outcome.unpredicted());
        self.health.ran_well(self.running.get(&kernel).map(|running| running.lanes).unwrap_or_default());
        let (pass, complete) = self.end_kernel(kernel);
        // A pass that nobody wants any more may still have come to its end.
        if self.passes[&pass].broken.is_some_and(|why| !(complete && why == Broken::Unwanted)) {
            self.end_broken(pass);
            return;
        }
        match (complete, outcome) {
            (false, Outcome::Progressed) => {
                self.drop_unwanted(pass);
                self.stopped(pass);
            }
            (true, Outcome::Tokens(tokens)) => self.pass_done(pass, &tokens),
            (complete, outcome) => panic!("kernel {kernel} brought {outcome:?}, and its pass ended: {complete}"),
        }
    }

    /// A kernel gave its lanes back, and its pass goes on at `node` when what it needs is there.
    fn kernel_waits(&mut self, kernel: KernelId, node: usize, about: Nanos) {
        let until = (self.now, self.now + about);
        self.health.ran_well(self.running.get(&kernel).map(|running| running.lanes).unwrap_or_default());
        let (pass, ()) = self.off_lanes(kernel, |pass, span, _| pass.kernel_waits(node, span, until));
        if self.passes[&pass].broken.is_some() {
            self.end_broken(pass);
            return;
        }
        self.drop_unwanted(pass);
        self.stopped(pass);
    }

    /// What a pass waits for is there. It may have been given up meanwhile.
    pub(super) fn data_ready(&mut self, pass: PassId) {
        if let Some(pass) = self.passes.get_mut(&pass) {
            pass.data_ready();
        }
    }

    pub(super) fn kernel_failed(&mut self, kernel: KernelId, why: Broken) {
        let (pass, _) = self.end_kernel(kernel);
        let broken = &mut self.passes.get_mut(&pass).expect("a kernel is of a pass").broken;
        // A pass that nobody wants could still have been completed; now it cannot.
        if matches!(broken, None | Some(Broken::Unwanted)) {
            *broken = Some(why);
        }
        self.end_broken(pass);
    }

    pub(super) fn lane_lost(&mut self, lane: LaneId) {
        let probed = match self.config.machine.lane(lane).capabilities.joins {
            Joins::Crew => Probed::Never,
            Joins::Rows => Probed::Later,
        };
        self.mirrors.lost(lane);
        if let Some(at) = self.health.lose(self.now, lane, probed) {
            self.set_timer(at, Reason::Probe);
        }
        assert!(has_dynamic_lane(&self.config, self.health.lost()), "the last lane that takes any shape is lost");
        let victims: Vec<KernelId> =
            self.running.iter().filter(|(_, running)| running.lanes.contains(lane)).map(|(&id, _)| id).collect();
        for kernel in victims {
            self.kernel_failed(kernel, Broken::LaneLost);
        }
    }

    /// A broken pass is undone when none of its kernels is on a lane any more. If a kernel failed, its members are run
    /// alone: one that fails alone has failed.
    fn end_broken(&mut self, pass: PassId) {
        let row = &self.passes[&pass];
        if !row.is_idle() {
            return;
        }
        let failed = row.broken == Some(Broken::KernelFailed);
        let members = self.undo(pass);
        if !failed {
            return;
        }
        let alone = members.len() == 1;
        for member in members {
            if self.table.get(member.request).is_none() {
                continue;
            }
            if alone {
                self.release(member.request, End::Failed);
            } else {
                self.table.update(member.request, |row| row.company = Company::Alone);
            }
        }
    }

    /// Gives up a pass between kernels if nobody wants any of its members.
    fn drop_unwanted(&mut self, pass: PassId) {
        let wanted = |member: &Member| self.table.get(member.request).is_some_and(|row| row.fate == Fate::GoesOn);
        if !self.passes[&pass].members.iter().any(wanted) {
            self.passes.get_mut(&pass).expect("the pass is under way").broken.get_or_insert(Broken::Unwanted);
            self.end_broken(pass);
        }
    }

    /// The members of a complete pass go on, or end.
    fn pass_done(&mut self, pass: PassId, tokens: &[Generated]) {
        let pass = self.passes.remove(&pass).expect("the pass is under way");
        let (now, mut tokens) = (self.now, tokens.iter());
        // Its members may make room for others now.
        self.memory_changed_hands();
        for member in &pass.members {
            let generated = match member.yields {
                Yields::Context => None,
                Yields::Token => Some(tokens.next().expect("every member that yields has a token")),
            };
            assert!(generated.is_none_or(|generated| generated.request == member.request), "tokens come in order");
            let new = generated.map_or(Tokens::ZERO, |generated| generated.tokens);
            assert!(new <= member.token_rows(), "a row yields a token at most");
            let fate = self.table.update(member.request, |row| {
                row.phase = Phase::Ready;
                row.computed = member.computed(new);
                row.generated += new;
                row.offer = generated.map_or(Offer::NONE, |generated| generated.offer.clone());
                row.since = if generated.is_some() { now } else { row.since };
                row.masks = generated.map_or(row.masks, |generated| recent(row.masks, generated.masks));
                row.company = Company::Any;
                row.fate
            });
            for lane in mirrors::holding_all(&pass, &self.config) {
                self.mirrors.attended(lane, member.request, member.computed(new));
            }
            if matches!(member.stage, Stage::Decode | Stage::Verify) {
                self.memory.keeps(member.request, member.computed(new));
            }
            let finished = generated.and_then(|generated| generated.finished);
            // An answer that came to its end before the cancellation did is a whole answer.
            let end = match (finished, fate) {
                (Some(reason), _) => Some(reason),
                (None, Fate::Cancelled) => Some(FinishReason::Cancelled),
                (None, Fate::GoesOn) => None,
            };
            if let Some(graph) = self.prefill_done(member) {
                self.commands.push_back(Command::Reclaim(graph));
            }
            if let Some(end) = end {
                self.release(member.request, End::Finished(end));
            }
        }
    }

    /// The graph that a member does not need any more.
    fn prefill_done(&mut self, member: &Member) -> Option<GraphId> {
        let done = member.stage == Stage::Prefill && member.yields == Yields::Token;
        if done && self.config.mechanisms.has(Mechanism::GraphReclaim) {
            self.graphs.give_up(member.request)
        } else {
            None
        }
    }

    /// Takes a pass back: its members are where they were before it, and those that nobody wants end.
    pub(crate) fn undo(&mut self, pass: PassId) -> Vec<Member> {
        self.memory_changed_hands();
        let pass = self.passes.remove(&pass).expect("the pass is under way");
        for member in &pass.members {
            let fate = self.table.update(member.request, |row| {
                row.phase = Phase::Ready;
                row.fate
            });
            if fate == Fate::Cancelled {
                self.release(member.request, End::Finished(FinishReason::Cancelled));
            }
        }
        pass.members
    }

    pub(super) fn cancel(&mut self, request: RequestId) {
        // The client may give up just as the request ends: that is no error.
        let Some(row) = self.table.get(request) else { return };
        match row.phase {
            Phase::Queued | Phase::Ready | Phase::Spilled => {
                self.release(request, End::Finished(FinishReason::Cancelled));
            }
            // What was asked of the world cannot be taken back; the request goes when the answer comes.
            Phase::Restoring | Phase::Spilling => self.table.update(request, |row| row.fate = Fate::Cancelled),
            Phase::InPass(pass) => {
                self.table.update(request, |row| row.fate = Fate::Cancelled);
                self.drop_unwanted(pass);
            }
        }
    }

    pub(crate) fn release(&mut self, request: RequestId, end: End) {
        let row = self.table.remove(request);
        self.hungry.remove(&request);
        self.memory.no_longer_awaits(request, row.request.prefix);
        let left = match end {
            End::Finished(_) => Some(row.kept(row.computed)),
            End::Failed => None,
        };
        self.memory.ended(self.now, request, row.request.class, left);
        if self.memory.is_kept(request) {
            self.mirrors.left(request);
        } else {
            self.drop_copies(request);
        }
        self.memory_changed_hands();
        if let Some(graph) = self.graphs.remove(request) {
            self.commands.push_back(Command::Reclaim(graph));
        }
        self.commands.push_back(Command::Release { request, end });
    }

    /// Takes the time of a kernel that ended well, and that nothing disturbed, into account, but for what was not predicted.
    pub(super) fn learn(&mut self, kernel: KernelId, unpredicted: Nanos) {
        if let Some(running) = self.running.get(&kernel).filter(|running| running.undisturbed) {
            let kind = self.passes[&running.pass].kind_of(&running.span.rows);
            let executors = self.config.machine.executors(running.lanes);
            let measured = Nanos((self.now - running.launched).0.saturating_sub(unpredicted.0));
            self.drift.learn(executors, kind, running.predicted, measured);
        }
    }

    /// Notes the end of a kernel, however it ended. Returns its pass, and whether that is complete.
    pub(super) fn end_kernel(&mut self, kernel: KernelId) -> (PassId, bool) {
        self.off_lanes(kernel, |pass, span, all| pass.kernel_done(&span.nodes, &span.rows, all))
    }

    /// Takes a kernel off its lanes, and notes what that is to its pass, of which all nodes are given.
    fn off_lanes<R>(&mut self, kernel: KernelId, note: impl FnOnce(&mut Pass, &Span, usize) -> R) -> (PassId, R) {
        let running = self.running.remove(&kernel).unwrap_or_else(|| panic!("kernel {kernel} is not under way"));
        let pass = self.passes.get_mut(&running.pass).expect("a kernel is of a pass");
        let graph = self.config.graph(pass.load.net);
        let noted = note(pass, &running.span, graph.nodes());
        if let Some(device) = mirrors::attending(&self.config.machine, running.lanes) {
            pass.attended(device, graph.order().count_of(NodeKind::Attention, &running.span.nodes), &running.span);
        }
        let time = self.now - running.launched;
        // An overdue rider that decodes gets on as well as in a pass of its own; a few rows of a prompt do not.
        let overdue = |member: &Member| {
            let rides = member.class == Class::Proactive && member.stage != Stage::Prefill;
            let row = self.table.get(member.request).filter(|_| rides);
            row.is_some_and(|row| self.ageing.is_overdue(self.now, row.arrived))
        };
        if pass.class == Class::Proactive || pass.members.iter().any(overdue) {
            let part = running.lanes.len() as f64 / self.config.machine.lanes.len() as f64;
            // One that rode had a person's kernel, which may be far longer than those that it would be given itself.
            let own = match pass.class {
                Class::Proactive => running.predicted,
                Class::Reactive => running.predicted.min(self.config.limits.preempt),
            };
            self.ageing.pay(time, part, own);
        }
        self.rest(running.lanes, time);
        (running.pass, noted)
    }

    /// Lets lanes rest after a kernel whose occupancy is capped.
    pub(super) fn rest(&mut self, lanes: LaneSet, time: Nanos) {
        for lane in lanes.iter() {
            let occupancy = self.config.machine.lane(lane).occupancy;
            if occupancy < 1.0 {
                let until = self.now + Nanos((time.0 as f64 * (1.0 - occupancy) / occupancy) as u64);
                self.rests.insert(lane, until);
                self.set_timer(until, Reason::Occupancy);
            }
        }
    }
}

/// How long masks take lately: one that took long because another program had the core counts for an eighth.
fn recent(before: Nanos, now: Nanos) -> Nanos {
    Nanos(before.0 - before.0 / 8 + now.0 / 8)
}

/// Whether a lane is left that takes any shape.
pub(super) fn has_dynamic_lane(config: &SchedulerConfig, lost: LaneSet) -> bool {
    let left = config.machine.all().without(lost);
    left.iter().any(|lane| !config.machine.is_static(lane))
}
