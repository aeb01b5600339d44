//! Samples for benchmarks: how soon reactive requests begin, what decisions cost, how busy the lanes are.
//!
//! They are drained by whoever wants them, and bounded for those who do not.

use crate::executors::LinearWork;
use duet_driver::Fact;
use duet_types::{Class, Instant, LaneId, Nanos};
use std::collections::VecDeque;

/// What was sampled since the last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineSamples {
    /// For each reactive request, from its admission to the launch of its first kernel.
    pub reactive_start: Vec<Nanos>,
    /// For each of these, the first lane of that kernel.
    pub reactive_led: Vec<LaneId>,
    /// The time of each event in the scheduler and its world: deciding, and carrying out what was decided.
    pub decisions: Vec<Nanos>,
    /// The time that the samples are of.
    pub wall: Nanos,
    /// How long each lane ran kernels.
    pub lanes_busy: Vec<Nanos>,
    /// How far kernels that each lane led were from their predictions.
    pub lanes_error: Vec<PredictionErrors>,
    /// Where linear work was done.
    pub work: LinearWork,
    /// Kernels that came to their end.
    pub kernels: u64,
}

/// How far kernels were from their predictions: of each, the deviation as a share of the prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PredictionErrors {
    /// Kernels.
    pub n: u64,
    /// The sum of their absolute deviations.
    pub sum: f64,
}

/// Collects samples.
#[derive(Debug)]
pub(crate) struct Samples {
    since: Instant,
    reactive_start: VecDeque<(Nanos, LaneId)>,
    decisions: VecDeque<Nanos>,
    lanes_busy: Vec<Nanos>,
    lanes_error: Vec<PredictionErrors>,
    kernels: u64,
}

impl Samples {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            since: Instant::default(),
            reactive_start: VecDeque::new(),
            decisions: VecDeque::new(),
            lanes_busy: vec![Nanos::ZERO; lanes],
            lanes_error: vec![PredictionErrors::default(); lanes],
            kernels: 0,
        }
    }

    /// The time of one event.
    pub(crate) fn decided(&mut self, time: Nanos) {
        push(&mut self.decisions, time);
    }

    /// Takes note of what a sample is of.
    pub(crate) fn take_in(&mut self, now: Instant, fact: &Fact) {
        match fact {
            Fact::Began { subject, waited, led, .. } if subject.class == Class::Reactive => {
                push(&mut self.reactive_start, (*waited, *led));
            }
            Fact::KernelEnded { launched, took, .. } => {
                self.kernels += 1;
                let leader = launched.lanes.leader().and_then(|lane| self.lanes_error.get_mut(usize::from(lane.0)));
                if let (Some(errors), predicted @ 1..) = (leader, launched.kernel.predicted.0) {
                    errors.n += 1;
                    errors.sum += (took.0 as f64 / predicted as f64 - 1.0).abs();
                }
                // What began before the last drain counts from then on.
                let took = now - launched.at.max(self.since).min(now);
                for lane in launched.lanes.iter() {
                    if let Some(busy) = self.lanes_busy.get_mut(usize::from(lane.0)) {
                        *busy += took;
                    }
                }
            }
            _ => {}
        }
    }

    /// Everything since the last call.
    pub(crate) fn take(&mut self, now: Instant) -> EngineSamples {
        let wall = now - self.since;
        self.since = now;
        let fresh = vec![Nanos::ZERO; self.lanes_busy.len()];
        let (reactive_start, reactive_led) = std::mem::take(&mut self.reactive_start).into_iter().unzip();
        EngineSamples {
            reactive_start,
            reactive_led,
            decisions: std::mem::take(&mut self.decisions).into(),
            wall,
            lanes_busy: std::mem::replace(&mut self.lanes_busy, fresh),
            lanes_error: {
                let fresh = vec![PredictionErrors::default(); self.lanes_error.len()];
                std::mem::replace(&mut self.lanes_error, fresh)
            },
            work: LinearWork::default(),
            kernels: std::mem::take(&mut self.kernels),
        }
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == SAMPLES_MAX {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The latest of each kind that are kept for somebody who asks.
const SAMPLES_MAX: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_drained_and_the_oldest_give_way() {
        let mut samples = Samples::new(1);
        for time in 0..SAMPLES_MAX as u64 + 5 {
            samples.decided(Nanos(time));
        }
        let taken = samples.take(Instant(7));
        assert_eq!((taken.decisions.len(), taken.decisions[0], taken.wall), (SAMPLES_MAX, Nanos(5), Nanos(7)));
        let next = samples.take(Instant(9));
        assert_eq!((next.decisions.len(), next.wall, next.lanes_busy), (0, Nanos(2), vec![Nanos::ZERO]));
    }
}
