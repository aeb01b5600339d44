//! Timelines as text: one line for each thing that happens, with its time, lanes, subject and reason.

use crate::node_counts::NodeCounts;
use crate::scenario::Scenario;
use duet_driver::Observer;
use duet_scheduler::progressive::Role;
use duet_scheduler::{Command, End, Event, GraphId, Kernel, Member, OnMiss, Outcome, PassId, Reason, Source};
use duet_types::{Class, FinishReason, Instant, KernelId, LaneId, LaneSet, RequestId, Stage};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Writes a timeline while it happens.
#[derive(Clone, Debug)]
pub struct Timeline {
    clients: Vec<String>,
    lanes: Vec<String>,
    nodes: NodeCounts,
    graphs: BTreeMap<GraphId, RequestId>,
    /// Kernels that might give their lanes back, with their passes and members.
    given_back: BTreeMap<KernelId, (PassId, String)>,
    text: String,
}

impl Timeline {
    /// An empty one, with the names of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let lanes = scenario.config.machine.lanes.iter();
        Self {
            clients: scenario.clients.iter().map(|client| client.name.clone()).collect(),
            lanes: lanes.map(|lane| lane.name.clone()).collect(),
            nodes: NodeCounts::of(&scenario.config),
            graphs: BTreeMap::new(),
            given_back: BTreeMap::new(),
            text: String::new(),
        }
    }

    /// What was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn line(&mut self, now: Instant, lanes: &str, action: &str, subject: &str, reason: &str) {
        let millis = format!("{:.2}", now.0 as f64 / 1e6);
        let line = format!("{millis:8}  {lanes:9}  {action:7}  {subject:28}  {reason}");
        writeln!(self.text, "{}", line.trim_end()).expect("a string takes everything");
    }

    fn note(&mut self, now: Instant, action: &str, subject: &str) {
        self.line(now, "", action, subject, "");
    }

    fn name(&self, request: RequestId) -> &str {
        &self.clients[request.0 as usize]
    }

    fn graph(&self, graph: GraphId) -> String {
        self.graphs.get(&graph).map_or_else(|| "?".to_owned(), |&request| self.name(request).to_owned())
    }

    fn lanes(&self, lanes: LaneSet) -> String {
        let names: Vec<&str> = lanes.iter().map(|LaneId(lane)| self.lanes[usize::from(lane)].as_str()).collect();
        names.join("+")
    }

    fn member(&self, member: &Member) -> String {
        let (name, rows) = (self.name(member.request), &member.rows);
        if member.len().0 == 1 {
            format!("{name}[{}]", rows.start)
        } else {
            format!("{name}[{}..{}]", rows.start, rows.end)
        }
    }

    /// Members, then nodes and rows unless it is all of them.
    fn subject(&self, kernel: &Kernel) -> String {
        let members: Vec<String> = kernel.members.iter().map(|member| self.member(member)).collect();
        let mut subject = members.join(" ");
        if kernel.nodes != (0..self.nodes.in_pass_of(kernel.net())) {
            write!(subject, " n{}..{}", kernel.nodes.start, kernel.nodes.end).expect("a string takes everything");
        }
        let rows: u32 = kernel.members.iter().map(|member| member.len().0).sum();
        if kernel.rows != (0..rows) {
            write!(subject, " r{}..{}", kernel.rows.start, kernel.rows.end).expect("a string takes everything");
        }
        subject
    }

    fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: &Kernel, reason: &Reason) {
        let action = match kernel.stage() {
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
            Stage::Verify => "verify",
        };
        if kernel.on_miss == OnMiss::GivesBack {
            let names: Vec<&str> = kernel.members.iter().map(|member| self.name(member.request)).collect();
            self.given_back.insert(kernel.id, (kernel.pass, names.join(" ")));
        }
        let (lanes, subject) = (self.lanes(lanes), self.subject(kernel));
        let reason = format!("{:5.2}  {reason}", kernel.predicted.as_millis_f64());
        self.line(now, &lanes, action, &subject, &reason);
    }
}

impl Observer for Timeline {
    fn event(&mut self, now: Instant, event: &Event) {
        let (action, subject) = match event {
            Event::Submitted(request) => {
                let class = if request.class == Class::Reactive { "reactive" } else { "proactive" };
                ("arrive", format!("{} {class}", self.name(request.id)))
            }
            Event::Restored { request, cached, source } if cached.0 > 0 => {
                let from = match source {
                    None => "its own, from disk".to_owned(),
                    Some(Source::TakenOver(of)) => format!("all of {}", self.name(*of)),
                    Some(Source::Forked(of)) => format!("of {}", self.name(*of)),
                };
                ("cached", format!("{}[0..{cached}] {from}", self.name(*request)))
            }
            Event::KernelFailed { kernel } => ("failed", format!("kernel {kernel}")),
            Event::GraphReady { graph } => ("ready", format!("graph for {}", self.graph(*graph))),
            Event::GraphFailed { graph } => ("failed", format!("graph for {}", self.graph(*graph))),
            Event::GraphLoaded { block } => ("loaded", format!("graph of block {block}")),
            Event::GraphLoadFailed { block } => ("failed", format!("graph of block {block}")),
            Event::LaneLost { lane } => ("lost", self.lanes[usize::from(lane.0)].clone()),
            Event::LaneSlow { lane } => ("slow", self.lanes[usize::from(lane.0)].clone()),
            Event::LaneBack { lane } => ("back", self.lanes[usize::from(lane.0)].clone()),
            Event::Spilled { request } => ("spilled", self.name(*request).to_owned()),
            Event::SpillFailed { request } => ("failed", format!("spill of {}", self.name(*request))),
            Event::Dropped { request } => ("dropped", self.name(*request).to_owned()),
            Event::Cancelled(request) => ("cancel", self.name(*request).to_owned()),
            Event::KernelDone { kernel, outcome: Outcome::Waits { node, about } } => {
                let subject = self.given_back.get(kernel).map(|(_, names)| names.as_str()).unwrap_or_default();
                ("waits", format!("{subject} n{node} for {:.2}", about.as_millis_f64()))
            }
            Event::DataReady { pass } => {
                let names = self.given_back.values().rev().find(|(of, _)| of == pass).map(|(_, names)| names.clone());
                ("read", names.unwrap_or_default())
            }
            Event::Restored { .. } | Event::KernelDone { .. } | Event::Timer => return,
        };
        self.note(now, action, &subject);
    }

    fn command(&mut self, now: Instant, command: &Command) {
        let (action, subject) = match command {
            Command::Launch { lanes, kernel, reason } => return self.launch(now, *lanes, kernel, reason),
            Command::Prepare(graph) => {
                self.graphs.insert(graph.id, graph.request);
                ("compile", format!("graph for {}[{} rows]", self.name(graph.request), graph.rows))
            }
            Command::Reclaim(graph) => ("reclaim", format!("graph for {}", self.graph(*graph))),
            Command::LoadGraph(load) => {
                let role = match load.role {
                    Role::Prefill => "prefill",
                    Role::Decode => "decode",
                };
                ("load", format!("{role} graph of block {}", load.block))
            }
            Command::Probe(lane) => ("probe", self.lanes[usize::from(lane.0)].clone()),
            Command::Spill(request) => ("spill", self.name(*request).to_owned()),
            Command::Forget(request) => ("forget", self.name(*request).to_owned()),
            Command::Discard(request) => ("discard", self.name(*request).to_owned()),
            Command::DropCopy { lane, request } => {
                ("drop", format!("copy of {} on {}", self.name(*request), self.lanes[usize::from(lane.0)]))
            }
            Command::Release { request, end } => {
                let end = match end {
                    End::Finished(FinishReason::Stop) => "stop",
                    End::Finished(FinishReason::Length) => "length",
                    End::Finished(FinishReason::Cancelled) => "cancelled",
                    End::Failed => "failed",
                };
                ("end", format!("{} {end}", self.name(*request)))
            }
            // Every background request has a timer for its age, and every restoration has an answer.
            Command::SetTimer { reason: Reason::Ageing, .. } | Command::Restore(_) => return,
            Command::SetTimer { at, reason } => {
                let until = format!("until {:.2}", at.0 as f64 / 1e6);
                return self.line(now, "", "wait", &until, &format!("       {reason}"));
            }
        };
        self.note(now, action, &subject);
    }
}
