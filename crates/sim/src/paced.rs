//! Work in virtual time that goes on as fast as others let it: a kernel, or a graph that is being loaded.

use duet_types::{Instant, Nanos};

/// Some work under way.
#[derive(Clone, Debug)]
pub(crate) struct Paced {
    /// Bytes a second that it moves when nothing disturbs it.
    bytes_per_s: f64,
    /// Nanoseconds that it still takes when nothing disturbs it, as of `since`.
    left: f64,
    since: Instant,
    /// How much slower it is at present.
    factor: f64,
}

impl Paced {
    /// Work that takes so many nanoseconds, and moves so many bytes a second, when nothing disturbs it.
    pub(crate) fn new(now: Instant, takes: f64, bytes_per_s: f64) -> Self {
        Self { bytes_per_s, left: takes, since: now, factor: 1.0 }
    }

    /// Bytes a second that it moves when nothing disturbs it.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// From now on it is so many times slower than undisturbed.
    pub(crate) fn slow(&mut self, now: Instant, factor: f64) {
        if factor.to_bits() != self.factor.to_bits() {
            self.left -= (now - self.since).0 as f64 / self.factor;
            (self.since, self.factor) = (now, factor);
        }
    }

    /// When it is done, if nothing changes.
    pub(crate) fn ends(&self) -> Instant {
        self.since + Nanos((self.left * self.factor).max(0.0).round() as u64)
    }
}
