//! What each launch takes by the adapter's own clock: for who makes kernels faster (`examples/launches.rs`).
//!
//! Then each launch is a pass of its own, so that nothing overlaps: sums are somewhat longer than what they are taken from, and so
//! is what the processor does. What that takes otherwise is noted if only that is asked for.

use crate::clock::{self, Clock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a launch took, or what the processor did for launches.
#[derive(Clone, Debug)]
pub struct LaunchTime {
    /// Its shader, with the constants that tell one matrix from another.
    pub name: String,
    /// How long it took.
    pub took: Duration,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// What the processor does.
    Processor,
    /// That, and each launch.
    Launches,
}

/// Launches that were timed, and were not asked for yet.
#[derive(Debug)]
pub(crate) struct Launches {
    clock: Clock,
    is_for_each: AtomicBool,
    ended: Mutex<Vec<LaunchTime>>,
}

impl Launches {
    /// Of an adapter, if it has a clock.
    pub(crate) fn of(device: &wgpu::Device, queue: &wgpu::Queue) -> Option<Self> {
        let clock = Clock::of(device, queue, clock::EACH)?;
        Some(Self { clock, is_for_each: AtomicBool::default(), ended: Mutex::default() })
    }

    pub(crate) fn time(&self, timed: Timed) {
        self.is_for_each.store(timed == Timed::Launches, Ordering::Relaxed);
    }

    /// The clock, if each launch is timed.
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.is_for_each.load(Ordering::Relaxed).then_some(&self.clock)
    }

    /// Notes those of a submission that has ended: their names, and what they took.
    pub(crate) fn note(&self, names: Vec<String>, times: Vec<Duration>) {
        let ended = names.into_iter().zip(times).map(|(name, took)| LaunchTime { name, took });
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).extend(ended);
    }

    /// Notes what the processor did.
    pub(crate) fn note_host(&self, what: &str, took: Duration) {
        let launch = LaunchTime { name: format!("(processor) {what}"), took };
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(launch);
    }

    /// Those that ended since the last time.
    pub(crate) fn take(&self) -> Vec<LaunchTime> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
