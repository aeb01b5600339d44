//! What was traced, and what rows say of it.

use super::paper_task::PaperTask;
use crate::report::outcome::Estimate;
use crate::traces::{RequestTrace, TaskTrace};

/// The traces of one model.
#[derive(Debug)]
pub(super) struct Study {
    /// Whose acceptance.
    pub(super) model: String,
    /// One for each task.
    pub(super) traces: Vec<TaskTrace>,
}

impl Study {
    /// What a row is of.
    pub(super) fn setting(&self, what: &str) -> String {
        format!("{what}, acceptance of {}", self.model)
    }

    /// Which of the traces stands for a task of the paper.
    pub(super) fn place(&self, task: PaperTask) -> Option<usize> {
        self.traces.iter().position(|trace| PaperTask::of(&trace.task) == Some(task))
    }

    /// Requests of all tasks.
    pub(super) fn n(&self) -> usize {
        self.traces.iter().map(|trace| trace.requests.len()).sum()
    }
}

impl TaskTrace {
    /// What rows call it.
    pub(super) fn title(&self) -> String {
        PaperTask::of(&self.task).map_or_else(|| self.task.name.clone(), |task| task.to_string())
    }

    /// Its name, and how much there is of it.
    pub(super) fn described(&self) -> String {
        let of = |length: fn(&RequestTrace) -> u32| {
            self.requests.iter().map(|request| f64::from(length(request))).sum::<f64>() / self.requests.len() as f64
        };
        format!(
            "{} ({} requests, on average {:.0} tokens of prompt and {:.0} of answer)",
            self.task.name,
            self.requests.len(),
            of(|request| request.prompt.0),
            of(|request| request.output.0)
        )
    }

    /// Something of all requests together, from its lowest to its highest of one of them.
    pub(super) fn pooled(&self, read: impl Fn(&[RequestTrace]) -> Option<f64>) -> Option<Estimate> {
        let value = read(&self.requests)?;
        let each = || self.requests.chunks(1).filter_map(&read);
        Some(Estimate { value, low: each().fold(value, f64::min), high: each().fold(value, f64::max) })
    }
}
