//! How a simulated machine truly is, whatever the scheduler was told.

use crate::faults::Faults;
use crate::speed::SpeedTimeline;
use duet_scheduler::{Machine, SchedulerConfig};
use duet_types::Nanos;

/// How the world truly is; the scheduler knows its configuration only.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// The machine.
    pub machine: Machine,
    /// Bytes a second that all lanes get together from the memory that they share; if it is not known, kernels disturb
    /// each other by the machine's contention.
    pub shared_bytes_per_s: Option<f64>,
    /// Bytes a second at which a compiled graph is loaded when nothing disturbs it; if it is not known, loading is a part
    /// of compiling, and disturbs nobody.
    pub graph_bytes_per_s: Option<f64>,
    /// How fast it is, against its anchors.
    pub speed: SpeedTimeline,
    /// Largest relative deviation of a kernel's time from its annotation.
    pub jitter: f64,
    /// Seed of the jitter.
    pub seed: u64,
    /// Writing a page to disk, or reading it.
    pub page_io: Nanos,
    /// A kernel that takes longer than this many times its prediction is given up.
    pub hang_timeout: f64,
    /// What goes wrong.
    pub faults: Faults,
}

impl Truth {
    /// A world that is as the scheduler thinks.
    #[must_use]
    pub fn of(config: &SchedulerConfig) -> Self {
        let (machine, faults) = (config.machine.clone(), Faults::default());
        Self {
            machine,
            shared_bytes_per_s: None,
            graph_bytes_per_s: None,
            speed: SpeedTimeline::default(),
            jitter: 0.0,
            seed: 0,
            page_io: Nanos(100_000),
            hang_timeout: HANG_TIMEOUT,
            faults,
        }
    }
}

/// Far more than jitter, contention and a machine that slowed down make of a prediction.
const HANG_TIMEOUT: f64 = 20.0;
