//! `duet bench graphs`: what a device that takes compiled graphs costs and gives.

use super::bench_lines::{Lines, half_of_cores};
use crate::bad_input::BadInput;
use crate::cli::GraphsArgs;
use crate::progress::eprintln_quiet;
use crate::{offloading, session};
use duet_bench::graphs::{self, Bed};
use duet_offload::GraphUse;
use duet_openvino::Activations;

pub(super) fn graphs(arguments: &GraphsArgs) -> anyhow::Result<()> {
    let threads = arguments.threads.unwrap_or_else(half_of_cores);
    let device = offloading::opened(&arguments.device, threads, Activations::ROUNDED)?;
    let model = session::open_with(&arguments.model, arguments.threads)?;
    let cache = offloading::cache(&model, &*device, None, GraphUse::Exchanged)?;
    let bed = Bed { model, device, threads, cache };
    let mut lines = Lines::new(arguments.json);
    let progress = |what: &str| eprintln_quiet(&format!("bench: {what}"));
    match graphs::run(&bed, &arguments.settings(), &progress, &mut |line| lines.tell(&line)) {
        Ok(()) => lines.finish(),
        Err(error) if error.is_bad_input() => Err(BadInput(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}
