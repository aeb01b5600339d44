//! Exporting: a line of JSON for each interaction, for its owner to read or to take along.

use crate::error::HistoryError;
use crate::file::{HistoryFile, Newest};
use crate::key::{Filter, ModelFingerprint};
use duet_types::{TokenId, Tokens};
use serde_json::{Value, json};
use std::io::Write;

impl HistoryFile {
    /// Writes the interactions that a filter means, task by task, oldest first. `text` decodes the tokens of a model
    /// that it knows. Returns how many there were.
    ///
    /// # Errors
    /// [`HistoryError`] if the file cannot be read or `out` not be written.
    pub fn export(
        &self,
        filter: &Filter,
        out: &mut impl Write,
        text: impl Fn(ModelFingerprint, &[TokenId]) -> Option<String>,
    ) -> Result<u64, HistoryError> {
        let ids = |tokens: &[TokenId]| tokens.iter().map(|token| Value::from(token.0)).collect::<Value>();
        let mut exported = 0;
        for (key, row) in self.rows.iter().filter(|(key, _)| filter.matches(key)) {
            for (sequence, said) in self.texts_of(row.id, Newest(Tokens(u32::MAX)))?.into_iter().rev() {
                let mut line = json!({
                    "user": key.user.as_str(),
                    "task": key.task.as_str(),
                    "model": key.model.to_string(),
                    "sequence": sequence,
                    "prompt_end": ids(said.cue()),
                    "answer": ids(said.answer()),
                });
                if let Some(text) = text(key.model, said.answer()) {
                    line["text"] = text.into();
                }
                writeln!(out, "{line}").map_err(HistoryError::Export)?;
                exported += 1;
            }
        }
        Ok(exported)
    }
}
