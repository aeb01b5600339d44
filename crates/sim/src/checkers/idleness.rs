//! No lane is idle while work that it may run waits.
//!
//! Asserted when an event has settled, unless something was put off on purpose (a remainder or a contender, which have a
//! timer), a graph is being loaded, a pass waits for a disk (what goes in between is cut to fit), or the occupancy of the dynamic lane is capped:
//! 1. Under every policy: if nothing runs, no pass is under way, nobody of those whom the policy may run (under `serial`
//!    the oldest request, under `restart` the oldest of the highest class, else everybody) is ready and has memory, and
//!    if a request is there at all, KV is on its way to memory or disk: something will happen. It is not asserted while each
//!    lane that takes any shape is lost or slow, and one is slow: static lanes cannot read a prompt to its end or decode,
//!    and what is slow comes back or is lost.
//! 2. Under `duet` and `agent-xpu`, where lanes are apart (they form no team, or may not): the decode lane runs something
//!    if no decode kernel is on any lane and a request that decodes is ready and has memory, or a decode pass is under
//!    way.
//! 3. The same of the prefill lane and prefill, if that lane takes any shape. (A static one may have to wait for a part
//!    of the node that only the other one can run.)
//!
//! 2 and 3 are asserted with preemption: without it a reactive request waits for the background pass under way, whatever
//! that waits for. In both background work may wait for reactive work on the other lane, if contention deferral is on, and under
//! `duet` background decode for a reactive prefill, which will want its lane. One-device policies run on one team only, so for them 1 says all.

use super::picture::{Picture, Seen, Standing, UnderWay};
use super::{Books, Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::machine::Joins;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Mechanism, SchedulerConfig};
use duet_types::{Class, Instant, LaneId, Net, RequestId, Stage};

#[derive(Debug)]
pub(super) struct Idleness {
    policy: PolicyName,
    config: SchedulerConfig,
    /// Which model each client's text goes through.
    nets: Vec<Net>,
}

impl Idleness {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let nets = scenario.clients.iter().map(|client| client.net).collect();
        Self { policy: scenario.policy, config: scenario.config.clone(), nets }
    }

    fn nothing_runs(&self, picture: &Picture) -> Result<(), String> {
        if !picture.kernels.is_empty() || picture.is_loading || picture.waits_for_slow(self.config.machine.dynamic()) {
            return Ok(());
        }
        if let Some((pass, under_way)) = picture.passes.first_key_value() {
            return Err(format!("nothing runs, and pass {pass} is under way: {under_way:?}"));
        }
        if let Some((request, _)) = self.may_run(picture).into_iter().find(|(_, seen)| picture.can_run(seen)) {
            return Err(format!("nothing runs, and {request} is ready and has memory"));
        }
        let moves = |(_, seen): (RequestId, &Seen)| matches!(seen.standing, Standing::Restoring | Standing::Spilling);
        match picture.live().next() {
            Some((request, seen)) if picture.writing.is_empty() && !picture.live().any(moves) => {
                Err(format!("nothing happens, and {request} is there: {seen:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Whom the policy may run.
    fn may_run<'a>(&self, picture: &'a Picture) -> Vec<(RequestId, &'a Seen)> {
        match self.policy {
            PolicyName::Serial => picture.live().min_by_key(|(_, seen)| seen.arrival).into_iter().collect(),
            PolicyName::Restart => {
                picture.live().min_by_key(|(_, seen)| (seen.class, seen.arrival)).into_iter().collect()
            }
            _ => picture.live().collect(),
        }
    }

    /// Whether each stage has a lane of its own.
    fn are_lanes_apart(&self, picture: &Picture) -> bool {
        let machine = &self.config.machine;
        let joins = machine.is_team(machine.all()) && self.config.mechanisms.has(Mechanism::Teams);
        // A lane that holds some layers waits while a pass is in others.
        let all_layers = machine.lanes.iter().all(|lane| lane.capabilities.layers.is_none());
        let both = machine.lanes.len() == 2 && picture.unusable().is_empty() && all_layers;
        let preempts = self.config.mechanisms.has(Mechanism::Preemption);
        match self.policy {
            PolicyName::AgentXpu => both && preempts,
            PolicyName::Duet => both && preempts && !joins,
            _ => false,
        }
    }

    /// A lane that is idle although its stage waits.
    fn lane(&self, picture: &Picture, lane: LaneId, stage: Stage) -> Result<(), String> {
        let runs = picture.passes.values().any(|pass| pass.stage == stage && pass.running > 0);
        if runs || !picture.idle(self.config.machine.all()).contains(lane) {
            return Ok(());
        }
        let reactive_runs = picture.passes.values().any(|pass| pass.class == Class::Reactive && pass.running > 0);
        let defers = reactive_runs && self.config.mechanisms.has(Mechanism::ContentionDeferral);
        let gives_way = self.policy == PolicyName::Duet && reads(picture);
        let may = |class| class == Class::Reactive || !(defers || gives_way);
        // Texts for the encoder wait for a core.
        let takes = |net: Net| net.is_decoder() || self.config.machine.lane(lane).capabilities.joins == Joins::Crew;
        let waits = |seen: &Seen| seen.stage() == stage && may(seen.class) && picture.can_run(seen);
        let net = |request: RequestId| self.nets[request.0 as usize];
        // Under `agent-xpu`, which reads one prompt at a time, nobody overtakes one that waits for a core, begun or not.
        let waits_for_core = |(request, seen): (RequestId, &Seen)| waits(seen) && !takes(net(request));
        let has_begun = |pass: &UnderWay| pass.stage == stage && !takes(pass.members[0].net);
        let blocked = picture.live().any(waits_for_core) || picture.passes.values().any(has_begun);
        if self.policy == PolicyName::AgentXpu && blocked {
            return Ok(());
        }
        let its = |pass: &UnderWay| pass.stage == stage && may(pass.class) && takes(pass.members[0].net);
        let under_way = picture.passes.iter().find(|(_, pass)| its(pass));
        if let Some((pass, _)) = under_way {
            return Err(format!("lane {lane} is idle, and pass {pass} is under way"));
        }
        match picture.live().find(|(request, seen)| waits(seen) && takes(net(*request))) {
            Some((request, _)) => Err(format!("lane {lane} is idle, and {request} is ready and has memory")),
            None => Ok(()),
        }
    }
}

/// Whether a reactive prompt is to be read.
fn reads(picture: &Picture) -> bool {
    let reads = |seen: &Seen| seen.class == Class::Reactive && seen.stage() == Stage::Prefill;
    picture.live().any(|(_, seen)| reads(seen))
}

impl Checker for Idleness {
    fn rule(&self) -> Rule {
        Rule::Idleness
    }

    fn settled(&mut self, picture: &Picture, now: Instant, _: &Books) -> Result<(), String> {
        if picture.rests(now) || picture.waits_for_disk() || self.config.machine.is_capped() {
            return Ok(());
        }
        self.nothing_runs(picture)?;
        if !self.are_lanes_apart(picture) {
            return Ok(());
        }
        let machine = &self.config.machine;
        self.lane(picture, machine.decode_lane(), Stage::Decode)?;
        let prefill = machine.prefill_lane();
        if machine.is_static(prefill) { Ok(()) } else { self.lane(picture, prefill, Stage::Prefill) }
    }
}
