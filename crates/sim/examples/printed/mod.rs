//! A timeline that is printed as far as it goes: also when a rule is broken.

use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_sim::{Scenario, Timeline};
use duet_types::Instant;

/// Prints while it happens.
pub(crate) struct Printed {
    timeline: Timeline,
    bytes: usize,
}

impl Printed {
    /// With the names of a scenario.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self { timeline: Timeline::new(scenario), bytes: 0 }
    }

    fn print(&mut self) {
        print!("{}", &self.timeline.text()[self.bytes..]);
        self.bytes = self.timeline.text().len();
    }
}

impl Observer for Printed {
    fn event(&mut self, now: Instant, event: &Event) {
        self.timeline.event(now, event);
        self.print();
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.timeline.command(now, command);
        self.print();
    }
}
