//! `duet report coordgen`: the results of CoordGen and sd.npu as they are predicted, beside the papers' own.
//!
//! **Rule:** acceptance is real, time is predicted. A real model verifies real drafts on the paper's four tasks
//! ([`traces`](crate::traces)); the passes that this takes are then timed on the profiles of the paper's phones, for the
//! paper's models by their shapes. So the tokens that a pass brings are those of the model that was run, not of the models
//! whose passes are timed; every row says whose. No constant is chosen from a result that is compared here. What published
//! facts contradict each other about is swept, and a figure stands with the lowest and the highest of the sweep.
//! (CoordGen §4; sd.npu §5)
//!
//! | what | file |
//! | --- | --- |
//! | which task of the paper a workload stands for | `paper_task.rs` |
//! | the phones and the models | `phones.rs` |
//! | what no profile says | `assumptions.rs` |
//! | passes of one stream on static graphs and on the CPU | `static_passes.rs` |
//! | the blocks of a model on two graphs, and ways to exchange them | `graph_blocks.rs`, `schedules.rs` |
//! | the paper's system and its baselines | `systems.rs` |
//! | the sweep | `sweep.rs` |
//! | a section each | `acceptance.rs`, `rejections.rs`, `utilisation.rs`, `ablation.rs`, `switching.rs`, `optimality.rs`, `latency.rs`, `energy.rs`, `memory.rs`, `breakdown.rs`, `serving.rs`, `constants.rs` |
//!
//! **Invariant:** the same model, requests and limit give the same bytes.

mod ablation;
mod acceptance;
mod assumptions;
mod breakdown;
mod constants;
mod energy;
mod graph_blocks;
mod latency;
mod memory;
mod optimality;
mod paper_task;
mod phones;
mod ratios;
mod rejections;
mod schedules;
mod serving;
mod static_passes;
mod study;
mod sweep;
mod switching;
mod systems;
#[cfg(test)]
mod tests;
mod utilisation;

use super::lab::Progress;
use super::section::Section;
use crate::traces::{Task, TraceError, Tracer};
use std::path::PathBuf;
use study::Study;
use sweep::Sweep;

/// What the report is made of.
#[derive(Clone, Copy, Debug)]
pub struct CoordGen<'a> {
    /// Whose acceptance.
    pub tracer: Tracer<'a>,
    /// One file for each task; without any, the samples that come with the program.
    pub workloads: &'a [PathBuf],
    /// Requests of each task at most.
    pub limit: usize,
}

pub(super) const TITLE: &str = "CoordGen and sd.npu, predicted";

/// The paragraphs before the sections, and the sections.
pub(super) fn sections(ask: &CoordGen<'_>, progress: Progress<'_>) -> Result<(Vec<String>, Vec<Section>), TraceError> {
    let mut traces = Vec::new();
    for task in Task::read(ask.workloads)? {
        progress(&format!("{}, every drafting method", task.name));
        traces.push(ask.tracer.trace(task, ask.limit)?);
    }
    let study = Study { model: ask.tracer.model.config().name.clone(), traces };
    progress("the paper's phones, models and systems");
    let sweep = Sweep::run(&study.traces);
    let sections = vec![
        acceptance::section(&study),
        rejections::section(&study),
        utilisation::section(&study),
        ablation::section(&study, &sweep),
        switching::section(&study),
        optimality::section(),
        latency::section(&study, &sweep),
        energy::section(&study, &sweep),
        memory::section(&study),
        breakdown::section(&study, &sweep),
        serving::section(&study),
        constants::section(),
    ];
    Ok((lead(&study), sections))
}

fn lead(study: &Study) -> Vec<String> {
    let tasks: Vec<String> = study.traces.iter().map(|trace| trace.described()).collect();
    let mut lead = vec![
        format!(
            "What CoordGen (and sd.npu, the same system in another text) would do on its three phones, as far as they are \
             known. Nothing of this ran on a phone. Acceptance is real and is that of {}: it verified every draft, on {}. \
             The papers' models are other ones, and a larger model may accept less. Time, energy and memory are predicted \
             for the papers' models by their shapes, with 8-bit weights.",
            study.model,
            tasks.join("; ")
        ),
        "Latency for each token is that of a request from its beginning to its end, over the tokens of its answer: only so \
         do the papers' milliseconds for each token, their shares of prefill and their speed-ups of decode fit together."
            .to_owned(),
        "A figure is that of the profiles as they are; from and to are its lowest and highest while one constant at a time, \
         or one of the facts that the sources contradict each other about, takes the ends of its interval. A deviation is \
         the distance from what the paper says, 0 within a range."
            .to_owned(),
        "No constant was chosen for the results that are compared here.".to_owned(),
    ];
    if study.traces.iter().any(|trace| paper_task::PaperTask::of(&trace.task).is_none()) {
        lead.push(
            "Requests of other files than coord_summary, coord_rag, ui_droidtask and reply_tweet, which stand for the \
             papers' summary, rag, ui and tweet, have no figure of the papers beside them."
                .to_owned(),
        );
    }
    lead
}
