//! The event log: what happened, in the order in which the scheduler saw it.
//!
//! The scheduler is a function of its events, so a log of them is enough to repeat every decision of a run, without
//! the lanes, the model or the time it took.

use crate::World;
use duet_scheduler::{Command, Event};
use duet_types::Instant;
use std::collections::VecDeque;

/// Events and when they happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLog {
    /// In the order in which they were handed over.
    pub entries: Vec<(Instant, Event)>,
}

/// A world whose events are logged. It grows by one entry per event: for tests and diagnosis, not for a server's life.
#[derive(Debug)]
pub struct Recorded<W> {
    /// The world.
    pub world: W,
    /// What happened in it.
    pub log: EventLog,
}

impl<W> Recorded<W> {
    /// Logs what happens in `world` from now on.
    pub fn new(world: W) -> Self {
        Self { world, log: EventLog::default() }
    }
}

impl<W: World> World for Recorded<W> {
    fn next(&mut self) -> Option<(Instant, Event)> {
        let entry = self.world.next()?;
        self.log.entries.push(entry.clone());
        Some(entry)
    }

    fn apply(&mut self, now: Instant, command: Command) {
        self.world.apply(now, command);
    }
}

/// A world in which a log happens again. It carries out nothing, and takes note of what it was asked.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    rest: VecDeque<(Instant, Event)>,
    /// What the scheduler asked for, and when.
    pub commands: Vec<(Instant, Command)>,
}

impl Replay {
    /// Repeats `log`.
    #[must_use]
    pub fn new(log: EventLog) -> Self {
        Self { rest: log.entries.into(), commands: Vec::new() }
    }
}

impl World for Replay {
    fn next(&mut self) -> Option<(Instant, Event)> {
        self.rest.pop_front()
    }

    fn apply(&mut self, now: Instant, command: Command) {
        self.commands.push((now, command));
    }
}
