//! A workload's prompts as texts to read: for calibrating on and for measuring on.

use super::{LoadError, Workload, encode};
use duet_model::Model;
use duet_types::{TokenId, Tokens};
use std::path::PathBuf;

/// The first `length` tokens of each prompt, as the model's template writes it, in the order of the files; without files,
/// of the samples that come with the program.
///
/// # Errors
/// As [`Workload::read`], or if the template refuses a prompt.
pub fn texts(model: &Model, files: &[PathBuf], length: Tokens) -> Result<Vec<Vec<TokenId>>, LoadError> {
    let length = length.min(model.config().context).as_usize();
    let workload = Workload::read(files)?;
    let texts = workload.all().map(|prompt| {
        let mut tokens = encode(model, &prompt.messages)?;
        tokens.truncate(length);
        Ok(tokens)
    });
    texts.collect()
}
