//! A small deterministic world: virtual time, lanes that charge a fixed price per row, requests that know how long
//! their answers are (and a scheduler that does not). It checks what the scheduler asks of it at every step.

use duet_driver::World;
use duet_scheduler::{Command, Completes, End, Event, Kernel, Outcome, Reason, Request};
use duet_types::{Class, FinishReason, Instant, KernelId, LaneSet, Nanos, RequestId, Stage, Tokens};
use std::collections::BTreeMap;

/// A request as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) arrives: Instant,
    pub(crate) class: Class,
    pub(crate) prompt: u32,
    pub(crate) cached: u32,
    pub(crate) output: u32,
    pub(crate) cancelled: Option<Instant>,
    /// Which of its kernels fails, from 0.
    pub(crate) fails: Option<u32>,
}

/// What the scheduler did, line by line of a timeline.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Arrived(RequestId),
    Cancelled(RequestId),
    Launched { lanes: LaneSet, kernel: Kernel, reason: Reason },
    Released { request: RequestId, end: End },
}

#[derive(Debug)]
pub(crate) struct FakeWorld {
    pub(crate) clients: Vec<Client>,
    pub(crate) timeline: Vec<(Instant, Entry)>,
    pub(crate) nodes: usize,
    agenda: BTreeMap<(Instant, u64), Event>,
    sequence: u64,
    busy: LaneSet,
    running: BTreeMap<KernelId, (LaneSet, RequestId)>,
    kernels: BTreeMap<RequestId, u32>,
    generated: BTreeMap<RequestId, u32>,
    released: BTreeMap<RequestId, End>,
}

impl FakeWorld {
    pub(crate) fn new(clients: Vec<Client>, nodes: usize) -> Self {
        let mut world = Self {
            clients,
            timeline: Vec::new(),
            nodes,
            agenda: BTreeMap::new(),
            sequence: 0,
            busy: LaneSet::EMPTY,
            running: BTreeMap::new(),
            kernels: BTreeMap::new(),
            generated: BTreeMap::new(),
            released: BTreeMap::new(),
        };
        for (id, client) in world.clients.clone().into_iter().enumerate() {
            let id = RequestId(id as u64);
            let request = Request { id, class: client.class, prompt: Tokens(client.prompt) };
            world.schedule(client.arrives, Event::Submitted(request));
            if let Some(at) = client.cancelled {
                world.schedule(at, Event::Cancelled(id));
            }
        }
        world
    }

    /// How every request ended.
    pub(crate) fn ends(&self) -> &BTreeMap<RequestId, End> {
        &self.released
    }

    fn client(&self, request: RequestId) -> &Client {
        &self.clients[request.0 as usize]
    }

    /// Ties go to what was scheduled first.
    fn schedule(&mut self, at: Instant, event: Event) {
        self.agenda.insert((at, self.sequence), event);
        self.sequence += 1;
    }

    fn launch(&mut self, now: Instant, lanes: LaneSet, kernel: Kernel) {
        assert!(self.busy.without(lanes) == self.busy, "lanes {lanes} run two kernels");
        assert!(!self.released.contains_key(&kernel.request), "a kernel of a released request");
        self.busy = self.busy.union(lanes);
        self.running.insert(kernel.id, (lanes, kernel.request));
        let ordinal = self.kernels.entry(kernel.request).or_default();
        let this = *ordinal;
        *ordinal += 1;

        let price = match kernel.stage {
            Stage::Prefill => PREFILL_ROW,
            Stage::Decode | Stage::Verify => DECODE_ROW,
        };
        let rows = u64::from((kernel.rows.end - kernel.rows.start).0);
        let done = now + Nanos(price.0 * rows * kernel.nodes.len() as u64 / self.nodes as u64);
        if self.client(kernel.request).fails == Some(this) {
            return self.schedule(done, Event::KernelFailed { kernel: kernel.id });
        }
        let outcome = match kernel.completes {
            Completes::Span | Completes::Chunk => Outcome::Progressed,
            Completes::Token => {
                let output = self.client(kernel.request).output;
                let generated = self.generated.entry(kernel.request).or_default();
                *generated += 1;
                Outcome::Token { finished: (*generated == output).then_some(FinishReason::Stop) }
            }
        };
        self.schedule(done, Event::KernelDone { kernel: kernel.id, outcome });
    }
}

impl World for FakeWorld {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let ((now, _), event) = self.agenda.pop_first()?;
        match &event {
            Event::Submitted(request) => self.timeline.push((now, Entry::Arrived(request.id))),
            Event::Cancelled(request) => self.timeline.push((now, Entry::Cancelled(*request))),
            Event::KernelDone { kernel, .. } | Event::KernelFailed { kernel } => {
                let (lanes, _) = self.running.remove(kernel).expect("a kernel ends once");
                self.busy = self.busy.without(lanes);
            }
            Event::Restored { .. } => {}
        }
        Some((now, event))
    }

    fn apply(&mut self, now: Instant, command: Command) {
        match command {
            Command::Restore(request) => {
                let cached = Tokens(self.client(request).cached);
                self.schedule(now, Event::Restored { request, cached });
            }
            Command::Launch { lanes, kernel, reason } => {
                self.launch(now, lanes, kernel.clone());
                self.timeline.push((now, Entry::Launched { lanes, kernel, reason }));
            }
            Command::Release { request, end } => {
                assert!(self.running.values().all(|&(_, running)| running != request), "released while it runs");
                let before = self.released.insert(request, end);
                assert!(before.is_none(), "{request} was released twice");
                self.timeline.push((now, Entry::Released { request, end }));
            }
        }
    }
}

/// Nanoseconds a row takes through all nodes.
const PREFILL_ROW: Nanos = Nanos(10_000);
const DECODE_ROW: Nanos = Nanos(1_000_000);
