//! Batching and contexts on this machine: prefill latency over batch, decode latency over batch and context.
//! (Agent.xpu Fig. 5)

use super::Measured;
use super::ProfileError;
use super::bench::{Bench, Shape, median, on};
use crate::executors::Site;
use duet_device::CpuLanes;
use serde::Serialize;
use std::sync::Arc;

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// Prompts of [`PROMPT`] tokens read together.
    pub prefill: Vec<PrefillLatency>,
    /// Tokens generated together.
    pub decode: Vec<DecodeLatency>,
}

/// Several prompts in one pass.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PrefillLatency {
    /// Prompts.
    pub batch: usize,
    /// Tokens of each.
    pub prompt: usize,
    /// Milliseconds for all of them.
    pub ms: f64,
}

/// Several sequences in one decode pass.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DecodeLatency {
    /// Sequences.
    pub batch: usize,
    /// Context of each.
    pub context: usize,
    /// Milliseconds for one token of each.
    pub ms: f64,
}

/// Tokens of a prompt.
const PROMPT: usize = 128;
const PREFILL_BATCHES: [usize; 4] = [1, 2, 4, 8];
const DECODE_BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const CONTEXTS: [usize; 4] = [128, 512, 1024, 2048];

/// Measures on the team of all lanes.
///
/// # Errors
/// [`ProfileError`].
pub(super) fn sweep(of: &Measured<'_>, lanes: &CpuLanes) -> Result<Sweep, ProfileError> {
    let Measured { model, kv, executors, .. } = *of;
    let positions = DECODE_BATCHES[DECODE_BATCHES.len() - 1] * (CONTEXTS[CONTEXTS.len() - 1] + 128);
    let bench = Bench::new(Arc::clone(model), Arc::clone(executors), kv, positions);
    let cores = lanes.all().without(executors.device_lanes());
    let time = |batch: usize, shape: Shape| {
        let bench = bench.clone();
        on(lanes, cores, move |site| time_passes(&bench, site, &vec![shape; batch]))?
    };
    let mut sweep = Sweep { prefill: Vec::new(), decode: Vec::new() };
    let prompt = PROMPT.min(model.config().context.as_usize());
    for batch in PREFILL_BATCHES {
        let ms = time(batch, Shape { context: 0, rows: prompt })?;
        sweep.prefill.push(PrefillLatency { batch, prompt, ms });
    }
    for context in CONTEXTS.into_iter().filter(|context| *context < model.config().context.as_usize()) {
        for batch in DECODE_BATCHES {
            let ms = time(batch, Shape { context, rows: 1 })?;
            sweep.decode.push(DecodeLatency { batch, context, ms });
        }
    }
    Ok(sweep)
}

/// Milliseconds of a pass without the head: the median of several.
fn time_passes(bench: &Bench, site: Site<'_>, shapes: &[Shape]) -> Result<f64, ProfileError> {
    let mut pass = bench.pass(shapes)?;
    let times: Result<Vec<f64>, ProfileError> =
        (0..5).map(|_| Ok(bench.time(&mut pass, bench.model.nodes().into_iter(), site)?.as_secs_f64() * 1e3)).collect();
    Ok(median(times?))
}
