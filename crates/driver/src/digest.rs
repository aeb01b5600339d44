//! The digest: what events and commands come to.
//!
//! Observers see single events and commands; people ask how long something waited, what was preempted, how far a
//! prediction was off. The digest follows every request and kernel from what is observed, and nothing else, and states
//! such facts for timelines and metrics alike. **Invariant:** its table stands where the scheduler's does: after the
//! commands of an event are drained, [`Digest::waiting`] is the scheduler's queue length.

use crate::fact::{Fact, Found, KernelEnd, LaneHealth, Launched, LoadEnd, Origin, Subject, kernel_ended, pass_began};
use duet_scheduler::{
    Command, End, Event, Generated, GraphLoad, Kernel, Line, Member, Outcome, PassId, Phase, Reason, Source,
};
use duet_types::{Class, Instant, KernelId, LaneId, LaneSet, RequestId, Stage, Tokens};
use std::collections::{BTreeMap, BTreeSet};

/// Follows requests and kernels. Feed it everything, in order.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    requests: BTreeMap<RequestId, Entry>,
    passes: BTreeMap<PassId, PassUnderWay>,
    running: BTreeMap<KernelId, Launched>,
    /// What each lane ran last.
    last_on: BTreeMap<LaneId, LastRun>,
    /// Whose KV is on disk, of requests under way and ended.
    on_disk: BTreeSet<RequestId>,
    /// The graph that is being loaded, since when.
    loading: Option<(Instant, GraphLoad)>,
    waiting: [[usize; 2]; 4],
}

#[derive(Clone, Debug)]
struct Entry {
    subject: Subject,
    prompt: Tokens,
    arrived: Instant,
    found: Found,
    phase: Phase,
    computed: Tokens,
    generated: Tokens,
    last_token: Option<Instant>,
    has_begun: bool,
}

#[derive(Clone, Debug)]
struct PassUnderWay {
    members: Vec<RequestId>,
    running: usize,
    broken: bool,
}

#[derive(Clone, Debug)]
struct LastRun {
    class: Class,
    requests: Vec<RequestId>,
}

impl Digest {
    /// Takes an event that is about to be handed to the scheduler.
    pub fn event(&mut self, now: Instant, event: &Event) -> Vec<Fact> {
        let mut facts = Vec::new();
        match event {
            Event::Submitted(request) => facts.push(self.submitted(now, request)),
            &Event::Restored { request, cached, source } => facts.extend(self.restored(request, cached, source)),
            Event::KernelDone { kernel, outcome } => {
                if let Some(launched) = self.running.remove(kernel) {
                    self.kernel_done(now, &launched.kernel, outcome, &mut facts);
                    let waits = matches!(outcome, Outcome::Waits { .. });
                    if waits {
                        // Whoever has its lanes next takes them from nobody.
                        launched.lanes.iter().for_each(|lane| drop(self.last_on.remove(&lane)));
                    }
                    let end = if waits { KernelEnd::Waits } else { KernelEnd::Done };
                    facts.insert(0, kernel_ended(now, launched, end));
                }
            }
            Event::KernelFailed { kernel } => facts.extend(self.kernel_failed(now, *kernel)),
            &Event::LaneSlow { lane } => facts.push(Fact::Lane { lane, health: LaneHealth::Slow }),
            &Event::LaneBack { lane } => facts.push(Fact::Lane { lane, health: LaneHealth::Well }),
            Event::LaneLost { lane } => {
                facts.push(Fact::Lane { lane: *lane, health: LaneHealth::Lost });
                let victims = self.running.iter().filter(|(_, launched)| launched.lanes.contains(*lane));
                for kernel in victims.map(|(&id, _)| id).collect::<Vec<_>>() {
                    facts.extend(self.kernel_failed(now, kernel));
                }
            }
            &Event::Spilled { request } => {
                self.on_disk.insert(request);
                self.update(request, |entry| entry.phase = Phase::Spilled);
                facts.push(Fact::Spilled { request });
            }
            &Event::SpillFailed { request } => {
                self.update(request, |entry| entry.phase = Phase::Ready);
                facts.push(Fact::SpillFailed { request });
            }
            Event::Dropped { request } => {
                self.on_disk.remove(request);
            }
            Event::GraphLoaded { .. } => facts.extend(self.graph_loaded(now, LoadEnd::Done)),
            Event::GraphLoadFailed { .. } => facts.extend(self.graph_loaded(now, LoadEnd::Failed)),
            Event::Cancelled(_)
            | Event::DataReady { .. }
            | Event::GraphReady { .. }
            | Event::GraphFailed { .. }
            | Event::Timer => {}
        }
        facts
    }

    /// Takes a command that is about to be carried out.
    pub fn command(&mut self, now: Instant, command: &Command) -> Vec<Fact> {
        let mut facts = Vec::new();
        match command {
            Command::Restore(request) => self.update(*request, |entry| entry.phase = Phase::Restoring),
            Command::Launch { lanes, kernel, reason } => self.launch(now, *lanes, kernel, *reason, &mut facts),
            &Command::Spill(request) => {
                self.update(request, |entry| entry.phase = Phase::Spilling);
                facts.push(Fact::SpillBegan { request });
            }
            Command::Forget(request) => {
                self.on_disk.remove(request);
            }
            Command::Discard(request) => facts.extend(self.discard(*request)),
            Command::Release { request, end } => facts.extend(self.release(now, *request, *end)),
            Command::LoadGraph(load) => self.loading = Some((now, *load)),
            Command::Prepare(_)
            | Command::Reclaim(_)
            | Command::Probe(_)
            | Command::DropCopy { .. }
            | Command::SetTimer { .. } => {}
        }
        facts
    }

    fn graph_loaded(&mut self, now: Instant, end: LoadEnd) -> Option<Fact> {
        let (since, load) = self.loading.take()?;
        Some(Fact::GraphLoaded { load, took: now - since, end })
    }

    /// How many requests of a class wait there.
    #[must_use]
    pub fn waiting(&self, line: Line, class: Class) -> usize {
        self.waiting[line as usize][class as usize]
    }

    fn submitted(&mut self, now: Instant, request: &duet_scheduler::Request) -> Fact {
        let subject = Subject { request: request.id, flow: request.flow, class: request.class };
        let background = self.running.values().any(|launched| launched.kernel.class() == Class::Proactive);
        let entry = Entry {
            subject,
            prompt: request.prompt,
            arrived: now,
            found: if background { Found::Background } else { Found::NoBackground },
            phase: Phase::Queued,
            computed: Tokens::ZERO,
            generated: Tokens::ZERO,
            last_token: None,
            has_begun: false,
        };
        self.waiting[entry.line() as usize][subject.class as usize] += 1;
        self.requests.insert(request.id, entry);
        Fact::Arrived { subject, prompt: request.prompt }
    }

    fn restored(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) -> Option<Fact> {
        let from = match source {
            // What is taken over has a new owner; what is forked stays where it is.
            Some(Source::TakenOver(of)) if self.on_disk.remove(&of) => Origin::Disk,
            Some(Source::Forked(of)) if self.on_disk.contains(&of) => Origin::Disk,
            Some(_) => Origin::Memory,
            None if self.on_disk.remove(&request) => Origin::Own,
            None => Origin::Nowhere,
        };
        self.update(request, |entry| {
            entry.phase = Phase::Ready;
            entry.computed = cached;
        });
        let subject = self.requests.get(&request)?.subject;
        Some(Fact::Restored { subject, cached, from })
    }

    fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: &Kernel, reason: Reason, facts: &mut Vec<Fact>) {
        let requests: Vec<RequestId> = kernel.members.iter().map(|member| member.request).collect();
        let pass = self.passes.entry(kernel.pass).or_insert_with(|| {
            facts.push(pass_began(kernel));
            PassUnderWay { members: requests.clone(), running: 0, broken: false }
        });
        pass.running += 1;
        facts.extend(self.preemption(lanes, kernel, &requests));
        for lane in lanes.iter() {
            self.last_on.insert(lane, LastRun { class: kernel.class(), requests: requests.clone() });
        }
        let mut flows = Vec::with_capacity(requests.len());
        for &request in &requests {
            self.update(request, |entry| entry.phase = Phase::InPass(kernel.pass));
            let Some(entry) = self.requests.get_mut(&request) else { continue };
            flows.push(entry.subject.flow);
            if !std::mem::replace(&mut entry.has_begun, true) {
                let waited = now - entry.arrived;
                let led = lanes.leader().unwrap_or(LaneId(0));
                facts.push(Fact::Began { subject: entry.subject, waited, found: entry.found, led });
            }
        }
        self.running.insert(kernel.id, Launched { kernel: kernel.clone(), lanes, reason, at: now, flows });
    }

    /// What a launch takes its lanes from, if it takes them.
    fn preemption(&self, lanes: LaneSet, kernel: &Kernel, requests: &[RequestId]) -> Option<Fact> {
        if kernel.class() == Class::Proactive {
            return None;
        }
        let background = |lane| self.last_on.get(&lane).filter(|last| last.class == Class::Proactive);
        let mut victims: Vec<Subject> = Vec::new();
        for request in lanes.iter().filter_map(background).flat_map(|last| &last.requests) {
            let open = self.requests.get(request).filter(|_| !requests.contains(request));
            // A team had one kernel on several lanes.
            victims.extend(open.map(|entry| entry.subject).filter(|subject| !victims.contains(subject)));
        }
        let by = kernel.members.iter().filter(|member| member.class == Class::Reactive).map(|member| member.request);
        (!victims.is_empty()).then(|| Fact::Preempted { victims, by: by.collect() })
    }

    fn kernel_done(&mut self, now: Instant, kernel: &Kernel, outcome: &Outcome, facts: &mut Vec<Fact>) {
        let Some(pass) = self.passes.get_mut(&kernel.pass) else { return };
        pass.running -= 1;
        match (pass.broken, outcome) {
            (true, _) if pass.running == 0 => self.undo(kernel.pass),
            (false, Outcome::Tokens(tokens)) => {
                self.passes.remove(&kernel.pass);
                self.pass_done(now, &kernel.members, tokens, facts);
            }
            _ => {}
        }
    }

    fn pass_done(&mut self, now: Instant, members: &[Member], tokens: &[Generated], facts: &mut Vec<Fact>) {
        for member in members {
            let generated = tokens.iter().find(|generated| generated.request == member.request);
            let new = generated.map_or(Tokens::ZERO, |generated| generated.tokens);
            self.update(member.request, |entry| {
                entry.phase = Phase::Ready;
                entry.computed = member.computed(new);
                entry.generated += new;
            });
            let Some(entry) = self.requests.get_mut(&member.request) else { continue };
            let subject = entry.subject;
            if member.stage == Stage::Prefill {
                facts.push(Fact::Read { subject, rows: member.len() });
            }
            if new > Tokens::ZERO {
                let gap = entry.last_token.replace(now).map(|last| now - last);
                let rows = (member.stage != Stage::Prefill).then(|| member.token_rows());
                facts.push(Fact::Tokens { subject, tokens: new, rows, gap });
            }
        }
    }

    fn kernel_failed(&mut self, now: Instant, kernel: KernelId) -> Option<Fact> {
        let launched = self.running.remove(&kernel)?;
        if let Some(pass) = self.passes.get_mut(&launched.kernel.pass) {
            pass.running -= 1;
            pass.broken = true;
            if pass.running == 0 {
                self.undo(launched.kernel.pass);
            }
        }
        Some(kernel_ended(now, launched, KernelEnd::Failed))
    }

    /// Takes a pass back: its members are where they were before it.
    fn undo(&mut self, pass: PassId) {
        for request in self.passes.remove(&pass).map(|pass| pass.members).unwrap_or_default() {
            self.update(request, |entry| entry.phase = Phase::Ready);
        }
    }

    fn discard(&mut self, request: RequestId) -> Option<Fact> {
        if let Some(Phase::InPass(pass)) = self.requests.get(&request).map(|entry| entry.phase) {
            self.undo(pass);
        }
        let &Entry { subject, computed, .. } = self.requests.get(&request)?;
        self.update(request, |entry| {
            entry.phase = Phase::Queued;
            entry.computed = Tokens::ZERO;
        });
        Some(Fact::Discarded { subject, computed })
    }

    fn release(&mut self, now: Instant, request: RequestId, end: End) -> Option<Fact> {
        let entry = self.requests.remove(&request)?;
        self.waiting[entry.line() as usize][entry.subject.class as usize] -= 1;
        if let Phase::InPass(pass) = entry.phase {
            // It is given up between two kernels, since nobody wants any of its members.
            self.passes.remove(&pass);
        }
        if end == End::Failed {
            self.on_disk.remove(&request);
        }
        Some(Fact::Ended { subject: entry.subject, end, lasted: now - entry.arrived })
    }

    /// What is to be said of the requests under way, if the scheduler has failed and they with it.
    #[must_use]
    pub fn failed(&self, now: Instant) -> Vec<Fact> {
        let ended = |entry: &Entry| Fact::Ended {
            subject: entry.subject,
            end: End::Failed,
            lasted: now - entry.arrived.min(now),
        };
        self.requests.values().map(ended).collect()
    }

    /// Changes an entry, if the request is under way; the queues follow.
    fn update(&mut self, request: RequestId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.requests.get_mut(&request) else { return };
        let class = entry.subject.class as usize;
        self.waiting[entry.line() as usize][class] -= 1;
        change(entry);
        self.waiting[entry.line() as usize][class] += 1;
    }
}

impl Entry {
    /// Where it waits. More than its last token's one row is reading, even of its own words.
    fn line(&self) -> Line {
        let known = self.prompt + self.generated;
        let reads = self.generated == Tokens::ZERO || known.saturating_sub(self.computed) > Tokens(1);
        match self.phase {
            Phase::Queued | Phase::Spilled => Line::Queued,
            Phase::Ready if reads => Line::Prefill,
            Phase::Ready => Line::Decode,
            Phase::Restoring | Phase::InPass(_) | Phase::Spilling => Line::Away,
        }
    }
}
