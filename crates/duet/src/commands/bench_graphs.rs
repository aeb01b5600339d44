//! `duet bench graphs`: what a device that takes compiled graphs costs and gives.

use crate::cli::GraphsArgs;
use crate::failure::{BadInput, print};
use crate::progress::eprintln_quiet;
use crate::{offloading, session};
use duet_bench::graphs::{self, Bed, Line};
use duet_openvino::Activations;

pub(super) fn graphs(arguments: &GraphsArgs) -> anyhow::Result<()> {
    let half =
        || std::thread::available_parallelism().map_or(1, |all| u16::try_from(all.get() / 2).unwrap_or(u16::MAX));
    let threads = arguments.threads.unwrap_or_else(half).max(1);
    let (device, cache) = (offloading::opened(&arguments.device, threads, Activations::ROUNDED)?, offloading::cache()?);
    let model = session::open_with(&arguments.model, arguments.threads)?;
    let bed = Bed { model, device, threads, cache };
    let mut printed = Ok(());
    let mut tell = |line: Line| {
        let text = if arguments.json { serde_json::to_string(&line).map_err(Into::into) } else { Ok(line.to_string()) };
        let result = text.and_then(|text| print(&(text + "\n")));
        if printed.is_ok() {
            printed = result;
        }
    };
    let progress = |what: &str| eprintln_quiet(&format!("bench: {what}"));
    match graphs::run(&bed, &arguments.settings(), &progress, &mut tell) {
        Ok(()) => printed,
        Err(error) if error.is_bad_input() => Err(BadInput(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}
