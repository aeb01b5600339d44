//! What no profile says, and what the profiles say of the units that the paper's systems use.

use super::assumptions;
use super::phones::Phone;
use crate::report::constants::{HEAD, table as profile};
use crate::report::section::{Entry, Section, Table};

pub(super) fn section() -> Section {
    let mut tables = vec![assumed()];
    tables.extend(Phone::ALL.map(|phone| profile(&phone.soc())));
    Section {
        id: "constants",
        title: "Everything that is assumed",
        prose: PROSE.map(str::to_owned).into(),
        tables,
        ..Section::default()
    }
}

const PROSE: [&str; 1] = [
    "The unit of a constant ends its name. None was chosen for what comes out above; those with an interval are swept over it, \
     one at a time.",
];

fn assumed() -> Table {
    let mut table = Table::new("What the sources contradict each other about, or say nothing of", &HEAD);
    for assumed in assumptions::ALL {
        table.push(vec![
            Entry::text(assumed.name),
            Entry::text(assumed.value),
            Entry::text(assumed.low),
            Entry::text(assumed.high),
            Entry::text(assumed.source),
        ]);
    }
    table
}
