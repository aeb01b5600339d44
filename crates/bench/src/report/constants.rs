//! Every constant of the profile, with its source and its interval.

use super::section::{Entry, Section, Table};
use duet_sim::SocProfile;

/// The section of a machine.
pub(crate) fn section(soc: &SocProfile) -> Section {
    Section {
        id: "constants",
        title: "The machine, constant by constant",
        prose: PROSE.map(str::to_owned).into(),
        tables: vec![table(soc)],
        ..Section::default()
    }
}

/// What is told of a constant.
pub(crate) const HEAD: [&str; 5] = ["constant", "value", "from", "to", "source"];

/// All constants of a machine.
pub(crate) fn table(soc: &SocProfile) -> Table {
    let mut table = Table::new(format!("{} ({})", soc.title, soc.name), &HEAD);
    for (path, constant) in soc.constants() {
        let interval = constant.interval();
        table.push(vec![
            Entry::text(path),
            Entry::text(constant.value),
            interval.map_or(Entry::text("–"), |(low, _)| Entry::text(low)),
            interval.map_or(Entry::text("–"), |(_, high)| Entry::text(high)),
            Entry::text(&constant.source),
        ]);
    }
    table
}

const PROSE: [&str; 1] = [
    "What is known of the paper's machine, and by whom. The unit of a constant ends its name. None was chosen for what comes \
     out above; those with an interval are varied over it in the section on sensitivity.",
];
