//! What a policy sees: a snapshot that it cannot change.
//!
//! It knows nothing that a real machine would not know: no answer's length, no future arrival.

use crate::ageing::Ageing;
use crate::annotation;
use crate::config::SchedulerConfig;
use crate::disk_wait;
use crate::drift::{Drift, Kind};
use crate::graphs::{GraphState, Graphs};
use crate::heg::{Heg, Load};
use crate::kernel::{Member, PassId, Span};
use crate::machine::{Bound, Joins};
use crate::mechanism::Mechanism;
use crate::mirrors::{self, Mirrors};
use crate::offer::Offer;
use crate::pass::Pass;
use crate::queues::Line;
use crate::request_table::{Company, Phase, Progress, RequestTable, Row};
use crate::residency::Residency;
use crate::running::Running;
use crate::span::{Cut, next_span};
use duet_types::{Class, Instant, KernelId, LaneId, LaneSet, Nanos, Net, RequestId, Stage, Tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A snapshot of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a SchedulerConfig,
    pub(crate) idle: LaneSet,
    pub(crate) lost: LaneSet,
    pub(crate) table: &'a RequestTable,
    pub(crate) passes: &'a BTreeMap<PassId, Pass>,
    pub(crate) running: &'a BTreeMap<KernelId, Running>,
    pub(crate) graphs: &'a Graphs,
    pub(crate) residency: Option<&'a Residency>,
    pub(crate) ageing: &'a Ageing,
    pub(crate) drift: &'a Drift,
    pub(crate) mirrors: &'a Mirrors,
    pub(crate) timers: &'a BTreeSet<Instant>,
    pub(crate) next_pass: PassId,
    /// Requests for which memory is being made free, or for which there is none.
    pub(crate) short: &'a BTreeSet<RequestId>,
}

/// One request of a [`View`].
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    row: &'a Row,
}

/// One kernel on a lane.
#[derive(Clone, Copy, Debug)]
pub struct RunningView {
    /// Its lanes.
    pub lanes: LaneSet,
    /// The class of its pass.
    pub class: Class,
    /// The stage of its pass.
    pub stage: Stage,
    /// What decides its time.
    pub bound: Bound,
}

impl<'a> View<'a> {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The machine, the model and the limits.
    #[must_use]
    pub fn config(&self) -> &'a SchedulerConfig {
        self.config
    }

    /// Whether a mechanism is on.
    #[must_use]
    pub fn has(&self, mechanism: Mechanism) -> bool {
        self.config.mechanisms.has(mechanism)
    }

    /// Lanes that run nothing and may be used now.
    #[must_use]
    pub fn idle(&self) -> LaneSet {
        self.idle
    }

    /// The lane of the NPU role; the only one that is left has both.
    #[must_use]
    pub fn prefill_lane(&self) -> LaneId {
        let lane = self.config.machine.prefill_lane();
        if self.lost.contains(lane) { self.left().leader().unwrap_or(lane) } else { lane }
    }

    /// The lane of the iGPU role.
    #[must_use]
    pub fn decode_lane(&self) -> LaneId {
        let lane = self.config.machine.decode_lane();
        if !self.lost.contains(lane) {
            return lane;
        }
        self.left().iter().filter(|&lane| !self.config.machine.is_static(lane)).last().unwrap_or(lane)
    }

    /// The lane of the iGPU: the last device that takes any rows and is neither lost nor slow. On a machine without one it is
    /// [`Self::decode_lane`].
    #[must_use]
    pub fn igpu_lane(&self) -> LaneId {
        let machine = &self.config.machine;
        let is_device = |lane: &LaneId| machine.lane(*lane).capabilities.joins == Joins::Rows;
        self.quick().iter().filter(is_device).last().unwrap_or_else(|| self.decode_lane())
    }

    /// The lanes that take any rows, but those that are lost, or slow with nothing on them.
    fn quick(&self) -> LaneSet {
        let runs = |lane: LaneId| self.running.values().any(|running| running.lanes.contains(lane));
        let is_there = |lane: &LaneId| self.idle.contains(*lane) || runs(*lane);
        self.config.machine.dynamic().without(self.lost).iter().filter(is_there).collect()
    }

    /// All lanes that are left as one team, if they are several and form one. Cores of which some are lost form none.
    #[must_use]
    pub fn team(&self) -> Option<LaneSet> {
        let left = self.left();
        (left.len() > 1 && self.config.machine.is_team(left)).then_some(left)
    }

    /// The lanes of the iGPU role for a pass: of those that take any rows, the team that is predicted to run these nodes
    /// of it soonest. Where that one is busy, an idle one that is slower by no more than a person may have to wait.
    #[must_use]
    pub fn dynamic_lanes(&self, load: &Load, stage: Stage, nodes: &Range<usize>) -> LaneSet {
        let usable = self.quick();
        if !self.has(Mechanism::Teams) || usable.is_empty() {
            return LaneSet::from_iter([self.decode_lane()]);
        }
        if usable.len() == 1 {
            return usable;
        }
        let timed = self.timed(usable, load, stage, nodes);
        let Some((best, lanes)) = timed.iter().min().copied() else { return LaneSet::from_iter([self.decode_lane()]) };
        let bound = best + self.config.limits.preempt;
        let idle = timed.into_iter().filter(|(time, lanes)| self.idle.contains_all(*lanes) && *time <= bound).min();
        idle.map_or(lanes, |(_, lanes)| lanes)
    }

    /// Of the teams among these lanes the one that is predicted to run a pass soonest from a node on, as far as the same
    /// devices hold its layers: all of them, where they are cores.
    #[must_use]
    pub fn quickest(&self, among: LaneSet, load: &Load, stage: Stage, node: usize) -> LaneSet {
        let timed = self.timed(among, load, stage, &self.stretch(load.net, node));
        timed.into_iter().min().map_or(among, |(_, lanes)| lanes)
    }

    /// All nodes of a pass, where every device holds all layers; else from a node to where the holders change.
    #[must_use]
    pub fn stretch(&self, net: Net, node: usize) -> Range<usize> {
        let order = self.config.graph(net).order();
        let devices_hold_all = self.config.machine.lanes.iter().all(|lane| lane.capabilities.layers.is_none());
        if devices_hold_all || net == Net::Encoder {
            return 0..order.count();
        }
        node..self.config.machine.border_behind(node, order)
    }

    /// The next kernel of a pass on some lanes.
    pub(crate) fn next_span(&self, pass: &Pass, lanes: LaneSet, cut: Cut) -> Span {
        let graph = disk_wait::on_lanes(self, pass);
        let within = |cut| next_span(&graph, self.config.machine.anchors(lanes), pass, cut);
        let span = within(cut);
        // On graphs that do not suit its rows it takes longer than annotations say.
        let slowdown = self.slowdown(&graph, pass.load.rows, &span.nodes, lanes);
        let span = if slowdown > 1.0 { within(cut.on_slower(slowdown)) } else { span };
        let end = self.stretch(pass.load.net, span.nodes.start).end.min(span.nodes.end);
        Span { nodes: span.nodes.start..end, ..span }
    }

    /// These lanes, if each of them holds the layers of a node; else the cores, which hold all. Of the encoder's nodes cores
    /// alone have the weights: of these, if none are left, there are none.
    #[must_use]
    pub fn holding(&self, lanes: LaneSet, net: Net, node: usize) -> LaneSet {
        let (machine, cores) = (&self.config.machine, self.cores());
        let hold = match net {
            Net::Decoder => machine.hold(lanes, self.config.graph(net).order(), &(node..node + 1)),
            Net::Encoder => cores.contains_all(lanes),
        };
        match (hold, net) {
            (true, _) => lanes,
            (false, _) if machine.is_team(cores) => cores,
            (false, Net::Decoder) => LaneSet::from_iter([self.decode_lane()]),
            (false, Net::Encoder) => cores.leader().into_iter().collect(),
        }
    }

    /// The teams among some lanes that compute these nodes, and how long each takes.
    fn timed(&self, among: LaneSet, load: &Load, stage: Stage, nodes: &Range<usize>) -> Vec<(Nanos, LaneSet)> {
        let load = &mirrors::spread(*load);
        let teams = self.config.machine.teams_among(among).into_iter();
        let able = teams.filter(|&lanes| self.computes(lanes, load, nodes));
        able.map(|lanes| (self.predict(load, stage, nodes, lanes), lanes)).collect()
    }

    /// Whether these lanes compute all of some nodes without help from others.
    #[must_use]
    pub fn computes(&self, lanes: LaneSet, load: &Load, nodes: &Range<usize>) -> bool {
        // Devices have the weights of the model that answers.
        if load.net == Net::Encoder && !self.cores().contains_all(lanes) {
            return false;
        }
        let order = self.config.graph(load.net).order();
        if !self.config.machine.hold(lanes, order, nodes) {
            return false;
        }
        let mut kinds = order.kinds().filter(|(kind, _)| order.count_of(*kind, nodes) > 0);
        kinds.all(|(kind, _)| self.config.machine.computes(lanes, kind, load))
    }

    /// The lanes of cores that are left.
    #[must_use]
    pub fn cores(&self) -> LaneSet {
        let machine = &self.config.machine;
        self.left().iter().filter(|&lane| machine.lane(lane).capabilities.joins == Joins::Crew).collect()
    }

    /// The only lane that can be used, if it takes any rows: a static one alone runs nothing to its end.
    #[must_use]
    pub fn only_lane(&self) -> Option<LaneSet> {
        let left = self.left();
        Some(left).filter(|left| left.len() == 1 && self.config.machine.dynamic().contains_all(*left))
    }

    /// The lanes that can be used.
    pub(crate) fn left(&self) -> LaneSet {
        self.config.machine.all().without(self.lost)
    }

    /// The kernels on lanes.
    pub fn running(&self) -> impl Iterator<Item = RunningView> {
        self.running.values().map(|running| {
            let pass = &self.passes[&running.pass];
            RunningView { lanes: running.lanes, class: pass.class, stage: pass.stage, bound: running.bound }
        })
    }

    /// All requests, oldest first.
    pub fn requests(&self) -> impl DoubleEndedIterator<Item = RequestView<'a>> + use<'a> {
        self.table.iter().map(|row| RequestView { row })
    }

    /// One request.
    #[must_use]
    pub fn request(&self, request: RequestId) -> Option<RequestView<'a>> {
        self.table.get(request).map(|row| RequestView { row })
    }

    /// The requests of a queue for which there is memory, oldest first.
    pub fn queue(&self, line: Line, class: Class) -> impl DoubleEndedIterator<Item = RequestView<'a>> + use<'a> {
        let short = self.short;
        let queue = self.table.queue(line, class).map(|row| RequestView { row });
        queue.filter(move |request| !short.contains(&request.id()))
    }

    /// The oldest request of a queue, with memory or without: nobody overtakes it.
    #[must_use]
    pub fn head(&self, line: Line, class: Class) -> Option<RequestView<'a>> {
        self.table.queue(line, class).next().map(|row| RequestView { row })
    }

    /// The oldest request of a class, whatever it does.
    #[must_use]
    pub fn oldest(&self, class: Class) -> Option<RequestView<'a>> {
        self.table.oldest(class).map(|row| RequestView { row })
    }

    /// Whether a request does not wait for memory.
    #[must_use]
    pub fn has_memory(&self, request: RequestId) -> bool {
        !self.short.contains(&request)
    }

    /// Whether the KV of a request of this class is being put in place.
    #[must_use]
    pub fn is_restoring(&self, class: Class) -> bool {
        self.table.queue(Line::Away, class).any(|row| row.phase == Phase::Restoring)
    }

    /// Whether no timer is set for exactly then.
    #[must_use]
    pub fn timer_missing(&self, at: Instant) -> bool {
        !self.timers.contains(&at)
    }

    /// A pass of these members as it would begin if it were the next one.
    #[must_use]
    pub fn draft(&self, members: Vec<Member>) -> Pass {
        let load = self.load(&members);
        Pass::new(self.next_pass, members, load)
    }

    /// What a pass of these members costs, with what devices lack of them.
    #[must_use]
    pub fn load(&self, members: &[Member]) -> Load {
        Load { lacking: self.mirrors.lacking(&self.config.machine, members), ..Load::of(members) }
    }

    /// The same with one member more.
    #[must_use]
    pub fn load_with(&self, load: Load, member: &Member) -> Load {
        let lacking = self.mirrors.lacking(&self.config.machine, std::slice::from_ref(member));
        Load { lacking: load.lacking + lacking, ..load.with(member) }
    }

    /// How many requests stand in a queue, with memory or without.
    #[must_use]
    pub fn queue_len(&self, line: Line, class: Class) -> usize {
        self.table.queue_len(line, class)
    }

    /// Requests of a class that have begun.
    #[must_use]
    pub fn live(&self, class: Class) -> usize {
        [Line::Prefill, Line::Decode, Line::Away].iter().map(|&line| self.table.queue_len(line, class)).sum()
    }

    /// The passes under way, oldest first.
    pub fn passes(&self) -> impl Iterator<Item = &'a Pass> + use<'a> {
        self.passes.values()
    }

    /// The pass under way of this class that holds the buffer of this stage: there is at most one of each model, and this is the
    /// oldest.
    #[must_use]
    pub fn pass(&self, class: Class, buffer: Stage) -> Option<&'a Pass> {
        self.passes.values().find(|pass| pass.class == class && pass.buffer == buffer)
    }

    /// The state of a request's graph, if one was ever asked for.
    #[must_use]
    pub fn graph(&self, request: RequestId) -> Option<GraphState> {
        self.graphs.state(request)
    }

    /// Whether a graph for so many rows of a request is ready.
    #[must_use]
    pub fn is_warm(&self, request: RequestId, rows: Tokens) -> bool {
        self.graphs.is_ready_for(request, rows)
    }

    /// The graphs that are prepared or being prepared.
    pub fn graphs(&self) -> impl Iterator<Item = (RequestId, GraphState)> + use<'a> {
        self.graphs.resident()
    }

    /// The oldest overdue request that can run, or else the oldest of all, if ageing is on: whoever waits for memory that
    /// others hold waits for them to go on.
    #[must_use]
    pub fn oldest_overdue(&self) -> Option<RequestView<'a>> {
        let oldest = self.table.oldest(Class::Proactive).filter(|_| self.has(Mechanism::Ageing))?;
        let is_overdue = self.ageing.is_overdue(self.now, oldest.arrived);
        is_overdue.then(|| self.overdue_that_can_run().unwrap_or(RequestView { row: oldest }))
    }

    /// The oldest overdue request that waits neither for memory nor for a disk.
    pub(crate) fn overdue_that_can_run(&self) -> Option<RequestView<'a>> {
        let waits = |row: &Row| match row.phase {
            Phase::Ready => false,
            Phase::InPass(pass) => self.passes.get(&pass).is_some_and(|pass| pass.coming().is_some()),
            _ => true,
        };
        let can_run = |row: &Row| {
            self.ageing.is_overdue(self.now, row.arrived) && !waits(row) && !self.short.contains(&row.request.id)
        };
        self.table.oldest_that(Class::Proactive, can_run).map(|row| RequestView { row })
    }

    /// Whether a request is overdue.
    #[must_use]
    pub fn is_overdue(&self, request: &RequestView<'_>) -> bool {
        self.has(Mechanism::Ageing)
            && request.class() == Class::Proactive
            && self.ageing.is_overdue(self.now, request.arrived())
    }

    /// Whether overdue work is owed a kernel of this length.
    #[must_use]
    pub fn owes(&self, time: Nanos) -> bool {
        self.ageing.owes(time)
    }

    /// How long a kernel will take on these lanes, as the machine is lately.
    #[must_use]
    pub fn predict(&self, load: &Load, stage: Stage, nodes: &Range<usize>, lanes: LaneSet) -> Nanos {
        self.predicted(self.config.graph(load.net), (load, stage), nodes, lanes)
    }

    fn predicted(&self, graph: &Heg, (load, stage): (&Load, Stage), nodes: &Range<usize>, lanes: LaneSet) -> Nanos {
        let time = annotation::predict(graph, self.config.machine.anchors(lanes), load, nodes);
        let time = Nanos((time.0 as f64 * self.slowdown(graph, load.rows, nodes, lanes)) as u64)
            + mirrors::copy_time(&self.config.machine, lanes, graph, load, nodes);
        self.drift.correct(self.config.machine.executors(lanes), Kind { net: load.net, stage, rows: load.rows }, time)
    }

    /// How much longer rows take on the graphs that are there than on those that suit them, if these lanes run graphs that are
    /// exchanged.
    fn slowdown(&self, graph: &Heg, rows: f64, nodes: &Range<usize>, lanes: LaneSet) -> f64 {
        let residency = self.residency.filter(|residency| residency.concerns(lanes));
        residency.map_or(1.0, |residency| residency.slowdown(graph, rows, nodes))
    }

    /// For how long the next kernel of a pass, if it is that one, will have these lanes.
    pub(crate) fn on_lanes(&self, pass: &Pass, span: &Span, lanes: LaneSet) -> Nanos {
        let load = pass.load.part(f64::from(span.rows.end - span.rows.start) / f64::from(pass.rows));
        self.predicted(&disk_wait::on_lanes(self, pass), (&load, pass.stage), &span.nodes, lanes)
    }

    /// When the next timer rings.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().copied()
    }

    /// How long a whole pass will take on these lanes.
    #[must_use]
    pub fn predict_pass(&self, load: &Load, stage: Stage, lanes: LaneSet) -> Nanos {
        self.predict(load, stage, &(0..self.config.graph(load.net).nodes()), lanes)
    }

    /// The measured time over the predicted one on these lanes, lately: bounds are divided by it.
    #[must_use]
    pub(crate) fn drift(&self, lanes: LaneSet, kind: Kind) -> f64 {
        self.drift.ratio(self.config.machine.executors(lanes), kind)
    }
}

impl RequestView<'_> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.row.request.id
    }

    /// Who waits for it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.row.request.class
    }

    /// Its tokens: the prompt, and what was generated.
    #[must_use]
    pub fn known(&self) -> Tokens {
        self.row.known()
    }

    /// Rows to be computed until its next token.
    #[must_use]
    pub fn rows_left(&self) -> Tokens {
        self.row.known() - self.row.computed
    }

    /// When it had its last token, or its KV.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.row.since
    }

    /// When it arrived.
    #[must_use]
    pub fn arrived(&self) -> Instant {
        self.row.arrived
    }

    /// What it is doing.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.row.phase
    }

    /// What its next rows are to it.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.row.stage()
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.row.progress()
    }

    /// Whether it must be run in a pass of its own.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.row.company == Company::Alone
    }

    /// Which model it goes through.
    #[must_use]
    pub fn net(&self) -> Net {
        self.row.request.net
    }

    /// What may follow its last token.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.row.offer
    }

    /// How long the masks of what its form lets come will probably take to make, from when its next pass begins.
    #[must_use]
    pub fn masks(&self) -> Nanos {
        self.row.masks
    }

    /// Its next rows, at most so many.
    #[must_use]
    pub fn member(&self, rows_max: Tokens) -> Member {
        self.row.member(rows_max)
    }
}
