//! Prints the timeline of a scenario while it happens: `cargo run -p duet-sim --example timeline < scenario.txt`.

use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_sim::{Scenario, ScenarioError, Timeline};
use duet_types::Instant;

fn main() -> Result<(), ScenarioError> {
    let text = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    let scenario: Scenario = text.parse()?;
    scenario.run(Printed { timeline: Timeline::new(&scenario), bytes: 0 });
    Ok(())
}

/// A timeline that is shown as far as it goes: also when a rule is broken.
struct Printed {
    timeline: Timeline,
    bytes: usize,
}

impl Printed {
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
