//! All that is counted of a run, recorded or simulated, by the same counters.

use crate::kernel_log::KernelLog;
use crate::metrics::Metrics;
use crate::reuse::Reuse;
use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::Instant;

/// Counts while it happens.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// What requests waited for.
    pub metrics: Metrics,
    /// What ran.
    pub kernels: KernelLog,
    /// What kept KV saved.
    pub reuse: Reuse,
}

impl Observer for Counters {
    fn event(&mut self, now: Instant, event: &Event) {
        self.metrics.event(now, event);
        self.kernels.event(now, event);
        self.reuse.event(now, event);
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.metrics.command(now, command);
        self.kernels.command(now, command);
        self.reuse.command(now, command);
    }
}
