//! What a subject does once it is open: it takes requests, and tells what came of them.

use super::job::{Answer, Job};
use duet_engine::EngineSamples;
use std::time::Instant;

/// A subject that takes requests.
pub(crate) trait Target: Send + Sync {
    /// Sends a job and waits for its end, or for `deadline` or [`Self::close`]. `answer` has what came until then.
    fn send(&self, job: &Job, deadline: Instant, answer: &mut Answer) -> Result<(), SendError>;

    /// Ends what is under way. Nothing is accepted afterwards.
    fn close(&self);

    /// What the engine sampled since the last call; `None` where there is no engine to ask.
    fn take_samples(&self) -> Option<EngineSamples>;

    /// The engine's lanes; none where there is no engine to ask.
    fn lanes(&self) -> Vec<TargetLane> {
        Vec::new()
    }
}

/// A lane of an engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TargetLane {
    pub(crate) name: String,
    /// While it works; absent: not known.
    pub(crate) watts: Option<f64>,
}

/// Why a job did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The slice was over.
    Closed,
    /// The server or the engine refused or failed.
    Failed(String),
}
