//! `duet report`: a paper's results, predicted beside the paper's own.

use crate::cli::ReportArgs;
use crate::failure::print;
use crate::progress::eprintln_quiet;
use duet_bench::report::{self, Plan};

pub(super) fn report(arguments: &ReportArgs) -> anyhow::Result<()> {
    let seeds = |default: u64| arguments.seeds.map_or(default, u64::from);
    let plan = if arguments.quick { Plan::quick(seeds(QUICK_SEEDS)) } else { Plan::whole(seeds(SEEDS)) };
    let progress = |what: &str| eprintln_quiet(&format!("report: {what}"));
    let rows = report::report(arguments.name, plan, &arguments.out, &progress)?;
    if arguments.json {
        return print(&rows.iter().map(|row| row.json().to_string() + "\n").collect::<String>());
    }
    let compared = rows.iter().filter(|row| row.is_compared()).map(|row| format!("{row}\n")).collect::<String>();
    print(&format!("{compared}written to {}\n", arguments.out.join("index.html").display()))
}

/// As many as the spread of a figure needs.
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 1;
