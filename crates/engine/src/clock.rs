//! The engine's clock.

use duet_types::{Instant, Nanos};

/// Monotonic time since the engine began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: std::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant::default() + Nanos::from(self.epoch.elapsed())
    }
}
