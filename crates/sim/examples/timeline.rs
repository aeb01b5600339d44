//! Prints the timeline of a scenario while it happens: `cargo run -p duet-sim --example timeline < scenario.txt`.

mod printed;

use duet_sim::{Scenario, ScenarioError};
use printed::Printed;

fn main() -> Result<(), ScenarioError> {
    let text = std::io::read_to_string(std::io::stdin()).unwrap_or_default();
    let scenario: Scenario = text.parse()?;
    scenario.run(Printed::new(&scenario));
    Ok(())
}
