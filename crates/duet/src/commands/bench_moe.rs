//! `duet bench moe`: experts on a device that takes compiled graphs.

use super::bench_lines::{Lines, half_of_cores};
use crate::bad_input::BadInput;
use crate::cli::MoeArgs;
use crate::progress::eprintln_quiet;
use crate::{models, offloading, session};
use duet_bench::graphs::Bed;
use duet_bench::moe::accuracy::{self, Target};
use duet_bench::moe::{self, Counts, MoeError};
use duet_offload::{GraphUse, expert_file};
use duet_openvino::Activations;
use std::sync::Arc;

pub(super) fn moe(arguments: &MoeArgs) -> anyhow::Result<()> {
    let threads = arguments.threads.unwrap_or_else(half_of_cores);
    let path = models::locate(&arguments.model)?;
    let llama_bench = arguments.llama_bench(&path)?;
    let model = session::open_with(&arguments.model, arguments.threads)?;
    moe::check(&model).map_err(named)?;
    let device = offloading::opened(&arguments.device, threads, Activations::ROUNDED)?;
    let cache = offloading::cache(&model, &*device, None, GraphUse::Resident)?;
    let counts = Counts::of(&model, &expert_file(&path), threads.into()).map_err(named)?;
    eprintln_quiet(&format!("bench: {}", counts.from.words()));
    let settings = arguments.settings(counts, llama_bench);
    let accuracy = arguments.accuracy(Target { device: Arc::clone(&device), cache: cache.clone() })?;
    let bed = Bed { model, device, threads, cache };
    let mut lines = Lines::new(arguments.json);
    let progress = |what: &str| eprintln_quiet(&format!("bench: {what}"));
    moe::run(&bed, &settings, &progress, &mut |line| lines.tell(&line)).map_err(named)?;
    if let Some(settings) = accuracy {
        let measured =
            accuracy::measure(&bed.model, &arguments.data, &settings, &progress, &mut |line| lines.tell(&line));
        measured.map_err(|error| {
            if error.is_bad_input() { BadInput(error.to_string()).into() } else { anyhow::Error::from(error) }
        })?;
    }
    lines.finish()
}

/// An error with the exit status that it deserves.
fn named(error: MoeError) -> anyhow::Error {
    if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
}
