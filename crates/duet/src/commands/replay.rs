//! `duet replay`: hands the events of a log to a new scheduler and compares its decisions with those in the log.

use crate::bad_input::BadInput;
use crate::cli::ReplayArgs;
use crate::failure::print;
use duet_engine::{ReplayError, replay as replay_log};
use std::fs::File;
use std::io::BufReader;

pub(super) fn replay(arguments: &ReplayArgs) -> anyhow::Result<()> {
    let shown = arguments.log.display();
    let file = File::open(&arguments.log).map_err(|error| BadInput(format!("{shown}: {error}")))?;
    match replay_log(BufReader::new(file)) {
        Ok(replayed) => print(&format!("{} events led to the same {} commands\n", replayed.events, replayed.commands)),
        Err(error @ ReplayError::Read(_)) => Err(BadInput(format!("{shown}: {error}")).into()),
        Err(error) => anyhow::bail!("{shown}: {error}"),
    }
}
