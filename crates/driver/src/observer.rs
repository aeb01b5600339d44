//! Observers: what sees everything that happens between the scheduler and its world, and changes nothing.
//!
//! Timelines, metrics and event logs are observers: they work alike for every world, real or virtual.

use crate::World;
use crate::probe::Probe;
use duet_scheduler::{Command, Event};
use duet_types::Instant;

/// Sees events and commands in their order.
pub trait Observer {
    /// This is about to be handed to the scheduler.
    fn event(&mut self, now: Instant, event: &Event);

    /// This is about to be carried out by the world.
    fn command(&mut self, now: Instant, command: &Command);

    /// The machine was probed. Most observers have no use for it.
    fn probe(&mut self, _: Instant, _: &Probe) {}
}

/// A world that is observed.
#[derive(Debug)]
pub struct Observed<W, O> {
    /// The world.
    pub world: W,
    /// What sees it.
    pub observer: O,
}

impl<W: World, O: Observer> World for Observed<W, O> {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let (now, event) = self.world.next()?;
        self.observer.event(now, &event);
        Some((now, event))
    }

    fn apply(&mut self, now: Instant, command: Command) {
        self.observer.command(now, &command);
        self.world.apply(now, command);
    }
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn event(&mut self, now: Instant, event: &Event) {
        self.0.event(now, event);
        self.1.event(now, event);
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.0.command(now, command);
        self.1.command(now, command);
    }

    fn probe(&mut self, now: Instant, probe: &Probe) {
        self.0.probe(now, probe);
        self.1.probe(now, probe);
    }
}

/// An observer that may be absent.
impl<O: Observer> Observer for Option<O> {
    fn event(&mut self, now: Instant, event: &Event) {
        if let Some(observer) = self {
            observer.event(now, event);
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        if let Some(observer) = self {
            observer.command(now, command);
        }
    }

    fn probe(&mut self, now: Instant, probe: &Probe) {
        if let Some(observer) = self {
            observer.probe(now, probe);
        }
    }
}
