//! What a measurement of a device prints: each line as soon as it is there.

use crate::failure::print;
use serde::Serialize;
use std::fmt::Display;

/// Prints lines, as JSON or as text, and keeps the first error.
pub(super) struct Lines {
    form: Form,
    printed: anyhow::Result<()>,
}

/// How lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Text,
}

impl Lines {
    /// Those of a command with or without `--json`.
    pub(super) fn new(json: bool) -> Self {
        Self { form: if json { Form::Json } else { Form::Text }, printed: Ok(()) }
    }

    pub(super) fn tell(&mut self, line: &(impl Serialize + Display)) {
        let text = match self.form {
            Form::Json => serde_json::to_string(line).map_err(Into::into),
            Form::Text => Ok(line.to_string()),
        };
        let result = text.and_then(|text| print(&(text + "\n")));
        if self.printed.is_ok() {
            self.printed = result;
        }
    }

    /// Whether all was printed.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.printed
    }
}

/// Half of the cores: the other half is left for what runs beside a device that is made of cores.
pub(super) fn half_of_cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |all| u16::try_from(all.get() / 2).unwrap_or(u16::MAX)).max(1)
}
