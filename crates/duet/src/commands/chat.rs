//! `duet chat`: loads the model, then talks.

use crate::chat::{Chat, Lines};
use crate::cli::{ChatArgs, HistoryDefault};
use crate::session;

pub(super) fn chat(arguments: &ChatArgs) -> anyhow::Result<()> {
    let history = arguments.history.place(HistoryDefault::On);
    let lines = if history.is_some() { Lines::Kept } else { Lines::Forgotten };
    let beside = (&arguments.device, &arguments.draft);
    let engine = session::start(&arguments.model, &arguments.engine, beside, history)?;
    let sampling = arguments.sampling.params(TEMPERATURE_DEFAULT);
    Chat::new(engine, arguments.system.clone(), sampling, arguments.sampling.stop(), lines)?.run()
}

/// Lively, and still on the subject with small models.
const TEMPERATURE_DEFAULT: f32 = 0.7;
