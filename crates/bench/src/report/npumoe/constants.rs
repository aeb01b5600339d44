//! What no profile says, and what the profiles say of the paper's machines.

use super::assumptions;
use super::machines::Machine;
use super::plans::{GRAPH_BYTES_MAX, GROUP_MAX, TIERS_MAX, TILE};
use crate::report::constants::{HEAD, table as profile};
use crate::report::section::{Entry, Section, Table};

pub(super) fn section() -> Section {
    let mut tables = vec![assumed(), plans()];
    tables.extend(Machine::ALL.map(|machine| profile(&machine.soc())));
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
     one at a time. The memory's bandwidth is shared by the lanes, and more than both take together even at the ends of their \
     intervals.",
];

fn assumed() -> Table {
    let mut table = Table::new("What the paper leaves open, or nobody says", &HEAD);
    for assumed in &assumptions::ALL {
        table.push([assumed.name, assumed.value, assumed.low, assumed.high, assumed.source].map(Entry::text).into());
    }
    table
}

fn plans() -> Table {
    let mut table = Table::new("What plans are made with", &["constant", "value", "source"]);
    let graph = GRAPH_BYTES_MAX.0 as f64 / 1e9;
    for (name, value, source) in [
        ("tiers of a layer, at most", TIERS_MAX.to_string(), "§4.1: a small number"),
        ("experts of a group, at most", GROUP_MAX.to_string(), "§5.7, Table 5: the largest that fits"),
        ("slots of a capacity are multiples of", TILE.0.to_string(), "§3.2"),
        (
            "weights of a graph, GB, at most",
            format!("{graph:.2}"),
            "§4.2: above 1.2 GB falls back; §5.7 runs 8 of 150 MiB",
        ),
        ("room over the expected load", "1".to_owned(), "§4.1"),
    ] {
        table.push(vec![Entry::text(name), Entry::text(value), Entry::text(source)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says of the memory's bandwidth: why contention is not computed.
    #[test]
    fn both_lanes_together_never_ask_for_more_than_the_memory_gives() {
        for machine in Machine::ALL {
            let soc = machine.soc();
            let high =
                |constant: &duet_sim::soc::Constant| constant.interval().map_or(constant.value, |(_, high)| high);
            let shared = soc.memory.shared_gb_s.value;
            assert!(soc.npu.read_gb_s.value + high(&soc.cpu.read_gb_s) <= shared);
            assert!(high(&soc.npu.read_gb_s) + soc.cpu.read_gb_s.value <= shared);
        }
    }
}
