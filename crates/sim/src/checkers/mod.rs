//! Checkers: what must hold after every event, whatever goes wrong.
//!
//! Each checker holds one rule, in a file of its own that says what is asserted and, where it is a bound, its formula.
//! They see what an observer sees, events and commands, and a [`Picture`] made of these alone; what pages there are in
//! truth and in the scheduler's books is told to them by whoever runs the world. None asks the scheduler what it thinks:
//! the rules are stated from outside. The world checks every command by itself, besides. (Agent.xpu §4.4: bounded
//! preemption; §4.5 ③: starvation)
//!
//! Invariant: the first broken rule is kept, since what follows it means nothing.

mod conservation;
mod endings;
mod holdings;
mod idleness;
mod order;
mod picture;
mod proactive_progress;
mod reactive_wait;
mod rule;
mod silence;

pub use conservation::Books;
pub use rule::{Broken, Rule};

use crate::scenario::Scenario;
use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::Instant;
use picture::Picture;
use std::fmt;

/// All checkers, for one run of a scenario.
#[derive(Debug)]
pub struct Checkers {
    picture: Picture,
    checkers: Vec<Box<dyn Checker>>,
    broken: Option<Broken>,
}

/// Holds one rule. An error says how it is broken.
trait Checker: fmt::Debug {
    fn rule(&self) -> Rule;

    /// An event is about to be handed to the scheduler; the picture is that of before it.
    fn event(&mut self, _picture: &Picture, _now: Instant, _event: &Event) -> Result<(), String> {
        Ok(())
    }

    /// A command is about to be carried out; the picture is that of before it.
    fn command(&mut self, _picture: &Picture, _now: Instant, _command: &Command) -> Result<(), String> {
        Ok(())
    }

    /// All commands that an event led to were carried out.
    fn settled(&mut self, _picture: &Picture, _now: Instant, _books: &Books) -> Result<(), String> {
        Ok(())
    }

    /// Nothing more will happen.
    fn ended(&mut self, _picture: &Picture) -> Result<(), String> {
        Ok(())
    }
}

impl Checkers {
    /// Those whose rules the scenario's policy promises to keep.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(conservation::Conservation::new(scenario)),
            Box::new(silence::Silence),
            Box::new(endings::Endings::new(scenario)),
            Box::new(reactive_wait::ReactiveWait::new(scenario)),
            Box::new(proactive_progress::ProactiveProgress::new(scenario)),
            Box::new(idleness::Idleness::new(scenario)),
            Box::new(order::Order::new(scenario)),
            Box::new(holdings::Holdings::new(scenario)),
        ];
        Self { picture: Picture::new(scenario.config.memory.page), checkers, broken: None }
    }

    /// All commands that an event led to were carried out, and this is how memory stands.
    pub fn settled(&mut self, now: Instant, books: &Books) {
        self.ask(now, |checker, picture| checker.settled(picture, now, books));
    }

    /// Nothing more will happen.
    pub fn ended(&mut self, now: Instant) {
        self.ask(now, |checker, picture| checker.ended(picture));
    }

    /// The first rule that was broken.
    #[must_use]
    pub fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    fn ask(&mut self, now: Instant, question: impl Fn(&mut dyn Checker, &Picture) -> Result<(), String>) {
        for checker in &mut self.checkers {
            if self.broken.is_some() {
                return;
            }
            if let Err(how) = question(checker.as_mut(), &self.picture) {
                self.broken = Some(Broken { rule: checker.rule(), at: now, how });
            }
        }
    }
}

impl Observer for Checkers {
    fn event(&mut self, now: Instant, event: &Event) {
        self.ask(now, |checker, picture| checker.event(picture, now, event));
        self.picture.event(now, event);
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.ask(now, |checker, picture| checker.command(picture, now, command));
        self.picture.command(now, command);
    }
}
