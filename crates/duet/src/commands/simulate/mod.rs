//! `duet simulate`: the scheduler in virtual time. One file for each source of requests.

mod figures;
mod functional;
mod judgement;
mod machine;
mod replay;
mod traffic;

use crate::cli::SimulateArgs;

pub(super) use replay::{Arrivals, compared};

pub(super) fn simulate(arguments: &SimulateArgs) -> anyhow::Result<()> {
    match (&arguments.replay, &arguments.functional) {
        (Some(log), _) => {
            let background = if arguments.in_flight { Arrivals::KeptInFlight } else { Arrivals::AsRecorded };
            replay::replay(log, background, arguments.json)
        }
        (None, Some(model)) => functional::simulate(arguments, model),
        (None, None) => traffic::simulate(arguments),
    }
}
