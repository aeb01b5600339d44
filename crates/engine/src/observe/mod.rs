//! What the engine shows of itself: figures for Prometheus, samples for benchmarks, and whatever else observes it.
//! (Timelines are the driver's, since every world has them.)

mod draft_model;
mod exact;
mod expert_memory;
mod experts;
mod families;
mod labels;
mod metrics;
mod samples;

pub(crate) use metrics::{Elsewhere, Metrics};
pub(crate) use samples::Samples;
pub use samples::{EngineSamples, PredictionErrors};

use duet_driver::{Digest, Fact, Observer, Probe};
use duet_scheduler::{Command, Event};
use duet_types::Instant;

/// Everything that sees events and commands. Metrics and samples are of the same facts.
pub(crate) struct Observers {
    digest: Digest,
    pub(crate) samples: Samples,
    pub(crate) metrics: Metrics,
    others: Vec<Box<dyn Observer + Send>>,
}

impl Observers {
    pub(crate) fn new(samples: Samples, metrics: Metrics, others: Vec<Box<dyn Observer + Send>>) -> Self {
        Self { digest: Digest::default(), samples, metrics, others }
    }

    /// A new scheduler begins: counting goes on, but what records the run cannot, since kernels and passes are numbered
    /// anew.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        self.metrics.scheduler_failed();
        let ended = std::mem::take(&mut self.digest).failed(now);
        self.take(now, ended);
        if !self.others.is_empty() {
            tracing::warn!("the record of this run ends here");
        }
        self.others.clear();
    }

    fn take(&mut self, now: Instant, facts: Vec<Fact>) {
        for fact in &facts {
            self.samples.take_in(now, fact);
            self.metrics.count(fact);
        }
    }
}

impl Observer for Observers {
    fn event(&mut self, now: Instant, event: &Event) {
        let facts = self.digest.event(now, event);
        self.take(now, facts);
        self.others.iter_mut().for_each(|other| other.event(now, event));
    }

    fn command(&mut self, now: Instant, command: &Command) {
        let facts = self.digest.command(now, command);
        self.take(now, facts);
        self.others.iter_mut().for_each(|other| other.command(now, command));
    }

    fn probe(&mut self, now: Instant, probe: &Probe) {
        self.others.iter_mut().for_each(|other| other.probe(now, probe));
    }
}
