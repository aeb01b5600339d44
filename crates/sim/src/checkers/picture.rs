//! The picture that checkers have of a run: who stands where, from events and commands alone.
//!
//! It is a second bookkeeping beside the scheduler's and the world's, made without either, and knows what an observer
//! can know. Where it cannot know whether a request has memory it says no. (Agent.xpu §4.1: request manager)

use duet_scheduler::{Command, End, Event, Kernel, Member, Outcome, PassId, Reason};
use duet_types::{Class, FinishReason, Instant, KernelId, LaneId, LaneSet, RequestId, Stage, Tokens};
use std::collections::{BTreeMap, BTreeSet};

/// Who stands where.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    page: Tokens,
    pub(super) requests: BTreeMap<RequestId, Seen>,
    pub(super) kernels: BTreeMap<KernelId, OnLanes>,
    pub(super) passes: BTreeMap<PassId, UnderWay>,
    lost: LaneSet,
    /// Lanes of which it is expected that they come back, or are lost, whatever anybody does.
    slow: LaneSet,
    /// Spills that were not answered, of live requests and of ended ones.
    pub(super) writing: BTreeSet<RequestId>,
    /// Until when lanes rest on purpose.
    rests_until: Instant,
    /// Whether a device's graph is being loaded.
    pub(super) is_loading: bool,
    arrivals: usize,
}

/// A request that was submitted.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) class: Class,
    pub(super) arrived: Instant,
    /// Its place among all that arrived.
    pub(super) arrival: usize,
    pub(super) known: Tokens,
    pub(super) generated: Tokens,
    pub(super) computed: Tokens,
    /// Positions that it surely has pages for.
    pub(super) paid: Tokens,
    pub(super) standing: Standing,
    /// Whether a kernel was launched for it since it was last queued.
    pub(super) begun: bool,
    pub(super) cancelled: bool,
    /// Its last token, if it had it.
    pub(super) finished: Option<FinishReason>,
    /// Whether a kernel failed in a pass that it had for itself.
    pub(super) failed_alone: bool,
}

/// What a request is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Queued,
    Restoring,
    Ready,
    InPass(PassId),
    Spilling,
    Spilled,
    Ended(End),
}

/// A kernel on its lanes.
#[derive(Clone, Debug)]
pub(super) struct OnLanes {
    pub(super) pass: PassId,
    pub(super) lanes: LaneSet,
    pub(super) launched: Instant,
}

/// A pass under way.
#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) members: Vec<Member>,
    pub(super) class: Class,
    pub(super) stage: Stage,
    /// Kernels of it on lanes.
    pub(super) running: usize,
    /// Whether it waits for a disk.
    pub(super) waits: bool,
    damage: Damage,
}

/// Whether a pass can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    None,
    LaneLost,
    KernelFailed,
}

impl Seen {
    /// Whether it is submitted and not released.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.standing, Standing::Ended(_))
    }

    /// What its next rows are to it.
    pub(super) fn stage(&self) -> Stage {
        let reads = self.generated == Tokens::ZERO || self.known - self.computed > Tokens(1);
        if reads { Stage::Prefill } else { Stage::Decode }
    }
}

impl Picture {
    pub(super) fn new(page: Tokens) -> Self {
        Self {
            page,
            requests: BTreeMap::new(),
            kernels: BTreeMap::new(),
            passes: BTreeMap::new(),
            lost: LaneSet::EMPTY,
            slow: LaneSet::EMPTY,
            writing: BTreeSet::new(),
            rests_until: Instant::default(),
            is_loading: false,
            arrivals: 0,
        }
    }

    /// The requests that were submitted and are not released.
    pub(super) fn live(&self) -> impl Iterator<Item = (RequestId, &Seen)> {
        self.requests.iter().filter(|(_, seen)| seen.is_live()).map(|(&id, seen)| (id, seen))
    }

    /// Whether it is ready, wanted, and surely has pages for all its rows.
    pub(super) fn can_run(&self, seen: &Seen) -> bool {
        let pages = |positions: Tokens| positions.0.div_ceil(self.page.0);
        seen.standing == Standing::Ready && !seen.cancelled && pages(seen.known) <= pages(seen.paid)
    }

    /// Whether lanes may rest now, because something was put off on purpose.
    pub(super) fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    /// Whether a pass waits for a disk: what it waits for will come.
    pub(super) fn waits_for_disk(&self) -> bool {
        self.passes.values().any(|pass| pass.waits)
    }

    /// Lanes that must not be used: those that are lost, and those that are slow.
    pub(super) fn unusable(&self) -> LaneSet {
        self.lost.union(self.slow)
    }

    /// Whether none of these lanes can be used before one that is slow comes back.
    pub(super) fn waits_for_slow(&self, lanes: LaneSet) -> bool {
        let left = lanes.without(self.lost);
        !left.is_empty() && self.slow.contains_all(left)
    }

    /// Lanes that run nothing, of these.
    pub(super) fn idle(&self, all: LaneSet) -> LaneSet {
        all.without(self.kernels.values().fold(self.unusable(), |busy, kernel| busy.union(kernel.lanes)))
    }

    pub(super) fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Submitted(request) => {
                let seen = Seen::submitted(now, request.class, self.arrivals, request.prompt);
                self.arrivals += 1;
                self.requests.insert(request.id, seen);
            }
            Event::Restored { request, cached, .. } => self.change(*request, |seen| {
                (seen.standing, seen.computed) = (Standing::Ready, *cached);
            }),
            Event::KernelDone { kernel, outcome } => self.kernel_done(*kernel, outcome),
            Event::KernelFailed { kernel } => self.kernel_failed(*kernel, Damage::KernelFailed),
            Event::LaneLost { lane } => self.lane_lost(*lane),
            Event::DataReady { pass } => {
                self.passes.entry(*pass).and_modify(|pass| pass.waits = false);
            }
            Event::Spilled { request } => self.spill_ended(*request, Standing::Spilled),
            Event::SpillFailed { request } => self.spill_ended(*request, Standing::Ready),
            Event::Cancelled(request) => self.change(*request, |seen| seen.cancelled |= seen.is_live()),
            Event::GraphLoaded { .. } | Event::GraphLoadFailed { .. } => self.is_loading = false,
            Event::LaneSlow { lane } => self.slow = self.slow.union(LaneSet::from_iter([*lane])),
            Event::LaneBack { lane } => self.lane_back(*lane),
            Event::GraphReady { .. } | Event::GraphFailed { .. } | Event::Dropped { .. } | Event::Timer => {}
        }
    }

    pub(super) fn command(&mut self, now: Instant, command: &Command) {
        match command {
            Command::Restore(request) => self.change(*request, |seen| {
                (seen.standing, seen.paid) = (Standing::Restoring, seen.known + Tokens(1));
            }),
            Command::Launch { lanes, kernel, .. } => self.launch(now, *lanes, kernel),
            Command::Spill(request) => {
                self.leave_pass(*request);
                self.writing.insert(*request);
                self.change(*request, |seen| {
                    if seen.is_live() {
                        (seen.standing, seen.paid) = (Standing::Spilling, Tokens::ZERO);
                    }
                });
            }
            Command::Discard(request) => {
                self.leave_pass(*request);
                self.change(*request, |seen| {
                    (seen.standing, seen.begun) = (Standing::Queued, false);
                    (seen.computed, seen.paid) = (Tokens::ZERO, Tokens::ZERO);
                });
            }
            Command::Release { request, end } => {
                self.leave_pass(*request);
                self.change(*request, |seen| seen.standing = Standing::Ended(*end));
            }
            Command::SetTimer { at, reason: Reason::DeferredRemainder | Reason::Contention | Reason::Occupancy } => {
                self.rests_until = self.rests_until.max(*at);
            }
            Command::LoadGraph(_) => self.is_loading = true,
            Command::SetTimer { .. }
            | Command::Prepare(_)
            | Command::Reclaim(_)
            | Command::Probe(_)
            | Command::Forget(_)
            | Command::DropCopy { .. } => {}
        }
    }

    /// An unknown request is the affair of the checkers that look at it.
    fn change(&mut self, request: RequestId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.requests.get_mut(&request) {
            change(seen);
        }
    }

    fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: &Kernel) {
        if !self.passes.contains_key(&kernel.pass) {
            kernel.members.iter().for_each(|member| self.leave_pass(member.request));
            // A draft is verified where its request decodes.
            let stage = if kernel.stage() == Stage::Prefill { Stage::Prefill } else { Stage::Decode };
            let (members, class) = (kernel.members.clone(), kernel.class());
            self.passes.insert(
                kernel.pass,
                UnderWay { members, class, stage, running: 0, waits: false, damage: Damage::None },
            );
        }
        for member in &kernel.members {
            self.change(member.request, |seen| {
                (seen.standing, seen.begun) = (Standing::InPass(kernel.pass), true);
                seen.paid = seen.paid.max(member.rows.end);
            });
        }
        self.passes.entry(kernel.pass).and_modify(|pass| pass.running += 1);
        self.kernels.insert(kernel.id, OnLanes { pass: kernel.pass, lanes, launched: now });
    }

    fn kernel_done(&mut self, kernel: KernelId, outcome: &Outcome) {
        let Some(pass) = self.take_off(kernel) else { return };
        if matches!(outcome, Outcome::Waits { .. }) {
            self.passes.entry(pass).and_modify(|pass| pass.waits = true);
        }
        let Outcome::Tokens(tokens) = outcome else { return self.end_damaged(pass) };
        let Some(complete) = self.passes.remove(&pass) else { return };
        for member in &complete.members {
            let generated = tokens.iter().find(|generated| generated.request == member.request);
            let new = generated.map_or(Tokens::ZERO, |generated| generated.tokens);
            self.change(member.request, |seen| {
                (seen.standing, seen.computed) = (Standing::Ready, member.computed(new));
                (seen.known, seen.generated) = (seen.known + new, seen.generated + new);
                seen.finished = generated.and_then(|generated| generated.finished);
                // Pages for rejected rows return, but not that of the next row.
                if member.stage == Stage::Verify {
                    seen.paid = seen.paid.min(seen.known);
                }
            });
        }
    }

    fn kernel_failed(&mut self, kernel: KernelId, damage: Damage) {
        let Some(pass) = self.take_off(kernel) else { return };
        self.passes.entry(pass).and_modify(|pass| {
            if pass.damage == Damage::None {
                pass.damage = damage;
            }
        });
        self.end_damaged(pass);
    }

    fn lane_back(&mut self, lane: LaneId) {
        let lane = LaneSet::from_iter([lane]);
        (self.lost, self.slow) = (self.lost.without(lane), self.slow.without(lane));
    }

    fn lane_lost(&mut self, lane: LaneId) {
        self.slow = self.slow.without(LaneSet::from_iter([lane]));
        self.lost = self.lost.union(LaneSet::from_iter([lane]));
        let victims = self.kernels.iter().filter(|(_, kernel)| kernel.lanes.contains(lane));
        let victims: Vec<KernelId> = victims.map(|(&id, _)| id).collect();
        victims.into_iter().for_each(|kernel| self.kernel_failed(kernel, Damage::LaneLost));
    }

    /// Takes a kernel off its lanes. Returns its pass.
    fn take_off(&mut self, kernel: KernelId) -> Option<PassId> {
        let pass = self.kernels.remove(&kernel)?.pass;
        self.passes.entry(pass).and_modify(|pass| pass.running -= 1);
        Some(pass)
    }

    /// A damaged pass is undone when none of its kernels is on a lane any more.
    fn end_damaged(&mut self, pass: PassId) {
        let Some(damaged) = self.passes.get(&pass).filter(|pass| pass.damage != Damage::None && pass.running == 0)
        else {
            return;
        };
        let alone = damaged.members.len() == 1 && damaged.damage == Damage::KernelFailed;
        for member in self.undo(pass) {
            self.change(member.request, |seen| seen.failed_alone |= alone);
        }
    }

    /// Members of an undone pass are where they were before it.
    fn undo(&mut self, pass: PassId) -> Vec<Member> {
        let members = self.passes.remove(&pass).map(|pass| pass.members).unwrap_or_default();
        for member in &members {
            self.change(member.request, |seen| {
                if seen.standing == Standing::InPass(pass) {
                    seen.standing = Standing::Ready;
                }
            });
        }
        members
    }

    /// A pass is given up for the sake of one of its members.
    fn leave_pass(&mut self, request: RequestId) {
        if let Some(&Standing::InPass(pass)) = self.requests.get(&request).map(|seen| &seen.standing) {
            self.undo(pass);
        }
    }

    fn spill_ended(&mut self, request: RequestId, standing: Standing) {
        self.writing.remove(&request);
        self.change(request, |seen| {
            if seen.standing == Standing::Spilling {
                seen.standing = standing;
            }
        });
    }
}

impl Seen {
    fn submitted(now: Instant, class: Class, arrival: usize, prompt: Tokens) -> Self {
        Self {
            class,
            arrived: now,
            arrival,
            known: prompt,
            generated: Tokens::ZERO,
            computed: Tokens::ZERO,
            paid: Tokens::ZERO,
            standing: Standing::Queued,
            begun: false,
            cancelled: false,
            finished: None,
            failed_alone: false,
        }
    }
}
