//! What the engine shows of itself: figures for Prometheus, samples for benchmarks, and whatever else observes it.
//! (Timelines are the driver's, since every world has them.)

mod families;
mod labels;
mod metrics;
mod samples;

pub(crate) use metrics::Metrics;
pub use samples::EngineSamples;
pub(crate) use samples::Samples;

use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::Instant;

/// Everything that sees events and commands.
pub(crate) struct Observers {
    pub(crate) samples: Samples,
    pub(crate) metrics: Metrics,
    pub(crate) others: Vec<Box<dyn Observer + Send>>,
}

impl Observer for Observers {
    fn event(&mut self, now: Instant, event: &Event) {
        self.samples.event(now, event);
        self.metrics.event(now, event);
        self.others.iter_mut().for_each(|other| other.event(now, event));
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.samples.command(now, command);
        self.metrics.command(now, command);
        self.others.iter_mut().for_each(|other| other.command(now, command));
    }
}
