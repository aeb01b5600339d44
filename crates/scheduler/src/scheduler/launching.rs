//! Launching: a policy's decisions, checked and carried out.

use super::Scheduler;
use crate::annotation;
use crate::command::Command;
use crate::config::SchedulerConfig;
use crate::disk_wait;
use crate::division::Members;
use crate::heg::Load;
use crate::kernel::{Kernel, Member, PassId, Span};
use crate::machine::{Anchors, Bound};
use crate::mirrors;
use crate::pass::Pass;
use crate::policy::{ActivationBuffers, Decision};
use crate::reason::Reason;
use crate::request_table::Phase;
use crate::running::Running;
use duet_types::{KernelId, LaneSet, NodeKind, RequestId, Stage, Tokens};
use std::ops::Range;

impl Scheduler {
    pub(super) fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Begin(request) => self.begin(request),
            Decision::Start { members, span, lanes, reason } => {
                if !self.waits_for_graph(&members, span.nodes.start, lanes) {
                    self.start(members, span, lanes, reason);
                }
            }
            Decision::Launch { pass, span, lanes, reason } => {
                let members = self.passes[&pass].members.clone();
                if !self.waits_for_graph(&members, span.nodes.start, lanes) {
                    self.launch(pass, span, lanes, reason);
                }
            }
            Decision::Prepare(request) => {
                let graph = self.graphs.prepare(request, self.graph_rows(request));
                self.commands.push_back(Command::Prepare(graph));
            }
            Decision::Reclaim(request) => {
                if let Some(graph) = self.graphs.give_up(request) {
                    self.commands.push_back(Command::Reclaim(graph));
                }
            }
            Decision::Wait { until, reason } => {
                assert!(until > self.now, "a policy waits for the future");
                self.set_timer(until, reason);
            }
            Decision::Restart(request) => {
                if let Some(Phase::InPass(pass)) = self.table.get(request).map(|row| row.phase) {
                    assert!(self.passes[&pass].is_idle(), "a kernel of {request} is on a lane");
                    self.undo(pass);
                }
                self.discard(request);
            }
        }
    }

    /// Rows of the pass that a graph for this request would serve, as far as is known.
    fn graph_rows(&self, request: RequestId) -> Tokens {
        let row = self.table.get(request).expect("a policy chooses from the table");
        if let Phase::InPass(pass) = row.phase {
            return Tokens(self.passes[&pass].rows);
        }
        let prefix = row.request.prefix.filter(|_| row.phase == Phase::Queued).map(|prefix| prefix.tokens);
        let cached = row.computed.max(prefix.unwrap_or_default());
        row.known().saturating_sub(cached).max(Tokens(1)).min(self.config.limits.prefill_rows)
    }

    fn start(&mut self, drafted: Vec<Member>, span: Span, lanes: LaneSet, reason: Reason) {
        let waiting = drafted.iter().find(|member| self.short.contains(&member.request));
        assert!(waiting.is_none(), "{waiting:?} waits for memory");
        let id = PassId(self.next_pass);
        let draft = self.view().draft(drafted.clone());
        let members = self.with_pages(drafted);
        let pass = self.view().draft(members.clone());
        let kind = |pass: &Pass| (pass.class, pass.stage == Stage::Prefill, pass.buffer);
        if members.is_empty() || kind(&pass) != kind(&draft) {
            // Those for whose sake it was composed are left out: the policy thinks again.
            return;
        }
        self.check_buffers(&pass);
        self.next_pass += 1;
        for member in &members {
            self.table.update(member.request, |row| {
                assert_eq!(row.phase, Phase::Ready, "{} is not ready", member.request);
                assert_eq!(row.computed, member.rows.start, "rows of {} come in order", member.request);
                row.phase = Phase::InPass(id);
            });
        }
        // All rows stay all rows, however many are left.
        let whole = span.rows == (0..draft.rows);
        let rows = if whole { 0..pass.rows } else { span.rows.start..span.rows.end.min(pass.rows) };
        self.passes.insert(id, pass);
        self.launch(id, Span { rows, ..span }, lanes, reason);
    }

    fn check_buffers(&self, pass: &Pass) {
        // The encoder has buffers of its own.
        let buffer = |pass: &Pass| (pass.class, pass.buffer, pass.load.net);
        let taken = self.passes.values().any(|other| buffer(other) == buffer(pass));
        let many = self.buffers == ActivationBuffers::OnePerRequest;
        assert!(many || !taken, "the activation buffer for {:?} {:?} is taken", pass.class, pass.buffer);
    }

    pub(super) fn launch(&mut self, pass: PassId, span: Span, lanes: LaneSet, reason: Reason) {
        assert!(!lanes.is_empty(), "a kernel needs a lane");
        assert!(self.view().idle.contains_all(lanes), "lanes {lanes} are not all idle");
        let row = &self.passes[&pass];
        let is_resumed = row.begun.is_some();
        let span = self.cut_at_block(row.resumed(span), lanes);
        let row = &self.passes[&pass];
        let load = row.load.part(f64::from(span.rows.end - span.rows.start) / f64::from(row.rows));
        let predicted = self.view().on_lanes(row, &span, lanes);
        let on_miss = disk_wait::on_miss(&self.view(), row);
        let anchors = self.config.machine.anchors(lanes);
        let bound = kernel_bound(&self.config, anchors, &load, &span);
        let graph = self.config.graph(row.load.net);
        let team = Members { machine: &self.config.machine, heg: graph, drift: Some(&self.drift) };
        let shares = team.shares(lanes, row.stage, Tokens(span.rows.end - span.rows.start));
        // What was done of a node before is not known.
        let undisturbed = self.running.is_empty() && !is_resumed;
        self.running.values_mut().for_each(|running| running.undisturbed = false);
        let meets = |other: &Pass| !other.lanes.without(lanes).contains_all(other.lanes);
        for other in self.passes.values_mut().filter(|other| other.id != pass && other.is_idle() && meets(other)) {
            other.interrupted = true;
        }
        for member in self.passes[&pass].members.clone() {
            self.graphs.used(self.now, member.request);
        }
        let row = self.passes.get_mut(&pass).expect("the pass is under way");
        let completes = row.launch(lanes, &span, self.config.graph(row.load.net).nodes());
        let id = KernelId(self.next_kernel);
        self.next_kernel += 1;
        let members = row.members.clone();
        let Span { nodes, rows } = span.clone();
        self.make_room_for_copies(lanes, &members, &nodes);
        let kernel = Kernel { id, pass, members, nodes, rows, completes, predicted, on_miss, shares };
        let launched = self.now;
        self.running.insert(id, Running { pass, lanes, bound, span, launched, predicted, undisturbed });
        self.commands.push_back(Command::Launch { lanes, kernel, reason });
    }
}

impl Scheduler {
    /// Before a kernel attends to copies in a device's own memory, those that have to make room for them go.
    fn make_room_for_copies(&mut self, lanes: LaneSet, members: &[Member], nodes: &Range<usize>) {
        let is_decoder = members.iter().all(|member| member.net.is_decoder());
        let attends = is_decoder && self.config.heg.order().count_of(NodeKind::Attention, nodes) > 0;
        let Some(lane) = mirrors::attending(&self.config.machine, lanes).filter(|_| attends) else { return };
        let gone = self.mirrors.make_room(lane, members, mirrors::space(&self.config, lane));
        self.commands.extend(gone.into_iter().map(|request| Command::DropCopy { lane, request }));
    }

    /// A request's copies in the memory of devices go, since it has none in the host's any more.
    pub(crate) fn drop_copies(&mut self, request: RequestId) {
        let gone = self.mirrors.forget(request);
        self.commands.extend(gone.into_iter().map(|(lane, request)| Command::DropCopy { lane, request }));
    }
}

fn kernel_bound(config: &SchedulerConfig, anchors: &Anchors, load: &Load, span: &Span) -> Bound {
    let graph = config.graph(load.net);
    if span.nodes.len() == 1 {
        annotation::bound(graph, anchors, load, graph.order().kind(span.nodes.start))
    } else {
        annotation::pass_bound(graph, anchors, load)
    }
}
