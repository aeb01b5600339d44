//! `duet simulate`: the scheduler in virtual time. One file for each source of requests.

mod judgement;
mod replay;

use crate::cli::SimulateArgs;

pub(super) fn simulate(arguments: &SimulateArgs) -> anyhow::Result<()> {
    replay::replay(&arguments.replay, arguments.json)
}
