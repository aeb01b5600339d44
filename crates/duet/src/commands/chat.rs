//! `duet chat`: loads the model, then talks.

use crate::chat::Chat;
use crate::cli::{ChatArgs, HistoryDefault};
use crate::session;

pub(super) fn chat(arguments: &ChatArgs) -> anyhow::Result<()> {
    let engine = session::start(
        &arguments.model,
        &arguments.engine,
        (&arguments.device, &arguments.draft),
        arguments.history.place(HistoryDefault::On),
    )?;
    let sampling = arguments.sampling.params(TEMPERATURE_DEFAULT);
    Chat::new(engine, arguments.system.clone(), sampling, arguments.sampling.stop())?.run()
}

/// Lively, and still on the subject with small models.
const TEMPERATURE_DEFAULT: f32 = 0.7;
