//! The one loop around the scheduler, and the worlds it may run in.
//!
//! A [`World`] is all that the scheduler is not: a clock, lanes, memory, clients. The engine's world has real ones;
//! another may have them in virtual time. The loop takes the world's next event, hands it to the scheduler, and drains
//! the scheduler's commands into the world; there is no second one.

mod digest;
mod event_log;
mod fact;
mod log_header;
mod log_reader;
mod observer;
mod probe;
mod trace;
mod trace_event;

pub use digest::Digest;
pub use event_log::{EventLog, ReplayError, Replayed, replay};
pub use fact::{Fact, Found, KernelEnd, LaneHealth, Launched, LoadEnd, Origin, Subject};
pub use log_header::Header;
pub use log_reader::{Line, LogError, LogReader};
pub use observer::{Observed, Observer};
pub use probe::{LaneTime, Probe, Rates};
pub use trace::Trace;

use duet_scheduler::{Command, Event, Scheduler};
use duet_types::Instant;

/// What the scheduler runs in.
pub trait World {
    /// What happened next, and when; `None` if nothing is known to happen. Times never go backwards.
    fn next(&mut self) -> Option<(Instant, Event)>;

    /// Carries out a command of the scheduler. It answers by a later event, never by calling the scheduler.
    fn apply(&mut self, now: Instant, command: Command);
}

/// Hands one event to the scheduler and its commands to the world.
pub fn step(scheduler: &mut Scheduler, world: &mut impl World, now: Instant, event: Event) {
    scheduler.handle(now, event);
    while let Some(command) = scheduler.poll() {
        world.apply(now, command);
    }
}

/// Steps until the world has no next event.
pub fn run(scheduler: &mut Scheduler, world: &mut impl World) {
    while let Some((now, event)) = world.next() {
        step(scheduler, world, now, event);
    }
}
