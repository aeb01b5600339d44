//! The progress of overdue proactive requests is bounded from below.
//!
//! `duet`, and `agent-xpu` on one lane, promise that a proactive request ends at the latest `age + work / share` after
//! its arrival, where its work is its own machine time and that of the proactive requests before it. Faults change the
//! work (kernels are repeated, KV is read again), so the bound is asserted in the form from which it follows: from the
//! age on, time is owed. While a proactive request is overdue, is ready or in a pass, and has memory, at every
//! event
//!
//! ```text
//! owed <= 3 kernel + share (longest kernel of anybody)
//! owed  = share (that time) - time of kernels with overdue or only proactive members (part of the lanes)   >= 0
//! ```
//!
//! A kernel of background work takes `preempt` at most, or as long as a node of the largest batch, or of the fewest rows
//! that are cut off, over the longest context, or as a node of all rows of the longest text that is encoded. Three, since one must be owed in full before it runs, one may have been
//! paid for in advance, and one is under way. The longest kernel is one that cannot be interrupted meanwhile.
//!
//! Nothing is owed while each of them waits for memory, is on disk, or waits for one; a fault (a kernel that fails, a lane that
//! is lost) starts the count anew. (Agent.xpu §4.5 ③ has no bound; this is ours)

use super::picture::{OnLanes, Picture, Seen, Standing};
use super::{Books, Checker, Rule};
use crate::client::Client;
use crate::scenario::Scenario;
use duet_scheduler::heg::Load;
use duet_scheduler::machine::Joins;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Event, Mechanism, SchedulerConfig, Yields, annotation};
use duet_types::{Class, Instant, Nanos, Net, Tokens};

#[derive(Debug)]
pub(super) struct ProactiveProgress {
    promised: Promise,
    age: Nanos,
    share: f64,
    lanes: usize,
    /// Longest kernel of background work, by annotation.
    kernel: f64,
    longest: Nanos,
    owed: f64,
    /// Since when time is owed, if it is.
    since: Option<Instant>,
}

/// Whether the policy promises anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Share,
    Nothing,
}

impl ProactiveProgress {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let Scenario { policy, config, truth, clients } = scenario;
        let has = |mechanism| config.mechanisms.has(mechanism);
        let shares = match policy {
            PolicyName::Duet => true,
            // On one lane its privileges mean nothing.
            PolicyName::AgentXpu => config.machine.lanes.len() == 1,
            _ => false,
        };
        let keeps = shares && has(Mechanism::Ageing) && has(Mechanism::Preemption);
        let longest = clients.iter().map(|client| client.prompt + client.output).max().unwrap_or_default();
        let slower = (1.0 + truth.jitter) * config.machine.contention.memory_beside_memory;
        Self {
            promised: if keeps && !config.machine.is_capped() { Promise::Share } else { Promise::Nothing },
            age: config.limits.age,
            share: config.limits.overdue_share,
            lanes: config.machine.lanes.len(),
            kernel: kernel_max(config, longest).max(encoder_max(config, clients)).0 as f64 * slower,
            longest: Nanos::ZERO,
            owed: 0.0,
            since: None,
        }
    }

    /// Whether time is owed: a proactive request is overdue, and could run.
    fn is_owed(&self, picture: &Picture, now: Instant) -> bool {
        let mut proactive = picture.live().filter(|(_, seen)| seen.class == Class::Proactive);
        let overdue = |seen: &Seen| now - seen.arrived >= self.age;
        proactive.any(|(_, seen)| {
            let goes_on = |pass| picture.passes.get(pass).is_some_and(|pass| !pass.waits);
            let in_pass = matches!(&seen.standing, Standing::InPass(pass) if goes_on(pass));
            overdue(seen) && !seen.cancelled && (in_pass || picture.can_run(seen))
        })
    }

    fn pay(&mut self, picture: &Picture, now: Instant, kernel: &OnLanes) {
        let time = now - kernel.launched;
        let Some(pass) = picture.passes.get(&kernel.pass) else { return };
        let overdue = |seen: &Seen| seen.class == Class::Proactive && now - seen.arrived >= self.age;
        let mut members = pass.members.iter().filter_map(|member| picture.requests.get(&member.request));
        if pass.class == Class::Proactive || members.any(overdue) {
            let part = kernel.lanes.len() as f64 / self.lanes as f64;
            self.owed = (self.owed - time.0 as f64 * part).max(0.0);
        }
    }
}

impl Checker for ProactiveProgress {
    fn rule(&self) -> Rule {
        Rule::ProactiveProgress
    }

    fn event(&mut self, picture: &Picture, now: Instant, event: &Event) -> Result<(), String> {
        if let Some(since) = self.since {
            self.owed += self.share * (now - since).0 as f64;
        }
        let under_way = picture.kernels.values().map(|kernel| now - kernel.launched);
        self.longest = under_way.chain([self.longest]).max().unwrap_or_default();
        match event {
            Event::KernelDone { kernel, .. } => {
                if let Some(kernel) = picture.kernels.get(kernel) {
                    self.pay(picture, now, kernel);
                }
            }
            Event::KernelFailed { .. } | Event::LaneLost { .. } | Event::LaneSlow { .. } => self.owed = 0.0,
            _ => {}
        }
        let bound = 3.0 * self.kernel + self.share * self.longest.0 as f64;
        if self.promised == Promise::Nothing || self.owed <= bound {
            return Ok(());
        }
        Err(format!("overdue work is owed {:.2} ms, and the bound is {:.2} ms", self.owed / 1e6, bound / 1e6))
    }

    fn settled(&mut self, picture: &Picture, now: Instant, _: &Books) -> Result<(), String> {
        self.since = self.is_owed(picture, now).then_some(now);
        if self.since.is_none() {
            self.owed = 0.0;
        }
        Ok(())
    }
}

/// The longest that a kernel of background work should take, with contexts of at most `longest`.
fn kernel_max(config: &SchedulerConfig, longest: Tokens) -> Nanos {
    let last = longest.saturating_sub(Tokens(1))..longest;
    let batch = (0..config.limits.batch).fold(Load::default(), |load, _| load.with_rows(last.clone(), Yields::Token));
    let part = Load::default().with_rows(longest.saturating_sub(PART_ROWS)..longest, Yields::Token);
    let chunk = Load::default().with_rows(longest.saturating_sub(config.limits.prefill_rows)..longest, Yields::Token);
    let dynamic = config.machine.lanes.iter().filter(|lane| lane.capabilities.is_dynamic());
    let teams = config.machine.teams.iter().map(|team| &team.anchors);
    let anchors = dynamic.map(|lane| &lane.anchors).chain(teams);
    let times = anchors.flat_map(|anchors| {
        config.heg.order().kinds().flat_map(move |(node, _)| {
            let part = if node.divides_rows() { part } else { chunk };
            [batch, part].map(|load| annotation::node_time(&config.heg, anchors, &load, node))
        })
    });
    times.max().unwrap_or_default().max(config.limits.preempt)
}

/// The longest that a kernel of the encoder should take, whose rows come all at once.
fn encoder_max(config: &SchedulerConfig, clients: &[Client]) -> Nanos {
    let encode = clients.iter().filter(|client| client.net == Net::Encoder);
    let Some(rows) = encode.map(|client| client.prompt).max() else { return Nanos::ZERO };
    let load = Load { net: Net::Encoder, ..Load::default() }.with_rows(Tokens::ZERO..rows, Yields::Token);
    let cores = config.machine.lanes.iter().filter(|lane| lane.capabilities.joins == Joins::Crew);
    let heg = config.graph(Net::Encoder);
    let nodes = || heg.order().kinds();
    let times = cores.flat_map(|lane| nodes().map(|(node, _)| annotation::node_time(heg, &lane.anchors, &load, node)));
    times.max().unwrap_or_default()
}

/// The fewest rows of a node that are cut off.
const PART_ROWS: Tokens = Tokens(16);
