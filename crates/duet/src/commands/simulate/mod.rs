//! `duet simulate`: the scheduler in virtual time. One file for each source of requests.

mod figures;
mod functional;
mod machine;
mod traffic;

use crate::cli::SimulateArgs;

pub(super) fn simulate(arguments: &SimulateArgs) -> anyhow::Result<()> {
    match &arguments.functional {
        Some(model) => functional::simulate(arguments, model),
        None => traffic::simulate(arguments),
    }
}
