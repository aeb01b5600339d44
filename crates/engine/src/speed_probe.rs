//! How fast the machine is at this moment: what one core multiplies from registers, and what it reads of the weights.
//!
//! A probe is a few slices of some tens of microseconds on the calling thread, and the median slice counts. A slice is
//! far shorter than what an operating system gives a thread at a time, so being descheduled, by the engine's own lanes
//! or by other programs, falls into one slice at most and does not count as slow. What is read are the model's weights,
//! a few layers on at each probe, so that they come from where a pass finds them: memory, or a large shared cache.
//!
//! What it sees: the core's clock, what a neighbour on the same physical core takes of it, the memory bandwidth that
//! other programs and machines leave. What it cannot see: time that the lanes are not given at all, the other cores'
//! speed, and how much slower a team is when one of its members is held up. It shares the memory with the lanes while
//! they run, so it finds somewhat less beside them than alone. (Agent.xpu appendix A: the anchors, as they are now)

use duet_driver::Rates;
use duet_kernels::probe::{multiply, read};
use duet_model::Model;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A probe of one model's machine.
pub(crate) struct SpeedProbe {
    model: Arc<Model>,
    /// Of one slice of arithmetic.
    rounds: usize,
    /// What is read next.
    layer: usize,
}

impl SpeedProbe {
    /// Takes a millisecond to find out how much work a slice is.
    pub(crate) fn new(model: Arc<Model>) -> Self {
        let mut rounds = 64;
        while rounds < ROUNDS_MAX && timed(|| multiply(model.isa(), rounds)).1 < SLICE {
            rounds *= 2;
        }
        Self { model, rounds, layer: 0 }
    }

    /// Takes a fraction of a millisecond.
    pub(crate) fn take(&mut self) -> Rates {
        let macs = (0..=SLICES).map(|_| {
            let (macs, took) = timed(|| multiply(self.model.isa(), self.rounds));
            macs as f64 / took.as_secs_f64().max(1e-9)
        });
        let macs_per_s = median_after_first(macs.collect());
        let bytes = (0..=SLICES).map(|slice| {
            let all = self.model.layer_bytes(self.layer + slice);
            let bytes = &all[..all.len().min(SLICE_BYTES)];
            let took = timed(|| read(self.model.isa(), bytes)).1;
            bytes.len() as f64 / took.as_secs_f64().max(1e-9)
        });
        let bytes_per_s = median_after_first(bytes.collect());
        self.layer += SLICES + 1;
        Rates { macs_per_s, bytes_per_s }
    }
}

fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// The first slice finds cold code and a sleeping core.
fn median_after_first(mut rates: Vec<f64>) -> f64 {
    rates.remove(0);
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Slices that count, of each kind.
const SLICES: usize = 7;
/// What a slice takes at least: a thousand times what reading the clock does.
const SLICE: Duration = Duration::from_micros(20);
/// On no machine does a slice of arithmetic take this.
const ROUNDS_MAX: usize = 1 << 20;
/// What a slice reads: about as long, at tens of gigabytes a second.
const SLICE_BYTES: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_was_interrupted_and_the_first_one_do_not_count() {
        assert_eq!(median_after_first(vec![1.0, 9.0, 8.0, 0.1]), 8.0);
        assert_eq!(median_after_first(vec![1.0, 7.0]), 7.0);
    }
}
