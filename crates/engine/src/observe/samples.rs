//! Samples for benchmarks: how soon reactive requests begin, what decisions cost, how busy the lanes are.
//!
//! They are drained by whoever wants them, and bounded for those who do not.

use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::{Class, Instant, KernelId, LaneSet, Nanos, RequestId};
use std::collections::{HashMap, VecDeque};

/// What was sampled since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineSamples {
    /// For each reactive request, from its admission to the launch of its first kernel.
    pub reactive_start: Vec<Nanos>,
    /// The time of each event in the scheduler and its world: deciding, and carrying out what was decided.
    pub decisions: Vec<Nanos>,
    /// The time that the samples are of.
    pub wall: Nanos,
    /// How long each lane ran kernels.
    pub lanes_busy: Vec<Nanos>,
    /// Kernels that came to their end.
    pub kernels: u64,
}

/// Collects samples.
#[derive(Debug)]
pub(crate) struct Samples {
    since: Instant,
    submitted: HashMap<RequestId, Instant>,
    running: HashMap<KernelId, (Instant, LaneSet)>,
    reactive_start: VecDeque<Nanos>,
    decisions: VecDeque<Nanos>,
    lanes_busy: Vec<Nanos>,
    kernels: u64,
}

impl Samples {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            since: Instant::default(),
            submitted: HashMap::new(),
            running: HashMap::new(),
            reactive_start: VecDeque::new(),
            decisions: VecDeque::new(),
            lanes_busy: vec![Nanos::ZERO; lanes],
            kernels: 0,
        }
    }

    /// The time of one event.
    pub(crate) fn decided(&mut self, time: Nanos) {
        push(&mut self.decisions, time);
    }

    /// Everything since the last call.
    pub(crate) fn take(&mut self, now: Instant) -> EngineSamples {
        let wall = now - self.since;
        self.since = now;
        let fresh = vec![Nanos::ZERO; self.lanes_busy.len()];
        EngineSamples {
            reactive_start: std::mem::take(&mut self.reactive_start).into(),
            decisions: std::mem::take(&mut self.decisions).into(),
            wall,
            lanes_busy: std::mem::replace(&mut self.lanes_busy, fresh),
            kernels: std::mem::take(&mut self.kernels),
        }
    }
}

fn push(samples: &mut VecDeque<Nanos>, sample: Nanos) {
    if samples.len() == SAMPLES_MAX {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The latest of each kind that are kept for somebody who asks.
const SAMPLES_MAX: usize = 200_000;

impl Observer for Samples {
    fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Submitted(request) if request.class == Class::Reactive => {
                self.submitted.insert(request.id, now);
            }
            Event::KernelDone { kernel, .. } | Event::KernelFailed { kernel } => {
                self.kernels += 1;
                if let Some((launched, lanes)) = self.running.remove(kernel) {
                    for lane in lanes.iter() {
                        if let Some(busy) = self.lanes_busy.get_mut(usize::from(lane.0)) {
                            // What began before the last drain counts from then on.
                            *busy += now - launched.max(self.since);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        match command {
            Command::Launch { lanes, kernel, .. } => {
                self.running.insert(kernel.id, (now, *lanes));
                for member in &kernel.members {
                    if let Some(submitted) = self.submitted.remove(&member.request) {
                        push(&mut self.reactive_start, now - submitted);
                    }
                }
            }
            Command::Release { request, .. } => {
                self.submitted.remove(request);
            }
            _ => {}
        }
    }
}
