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

/// About `tokens` tokens of some texts, from all over them.
#[must_use]
pub fn spread(texts: impl Iterator<Item = Vec<TokenId>>, tokens: usize) -> Vec<Vec<TokenId>> {
    let texts: Vec<Vec<TokenId>> = texts.collect();
    let all: usize = texts.iter().map(Vec::len).sum();
    let (mut due, mut taken) = (0.0, 0);
    let mut chosen = Vec::new();
    for text in texts {
        due += text.len() as f64 * (tokens as f64 / all.max(1) as f64).min(1.0);
        if taken as f64 + 0.5 * text.len() as f64 <= due {
            taken += text.len();
            chosen.push(text);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_from_all_over() {
        let texts = || (0..40_u32).map(|index| vec![TokenId(index); 10 + index as usize % 7]);
        let chosen = spread(texts(), 130);
        let tokens: usize = chosen.iter().map(Vec::len).sum();
        assert!((110..=150).contains(&tokens), "{tokens}");
        assert!(chosen[0][0].0 < 10 && chosen[chosen.len() - 1][0].0 >= 30);
        assert_eq!(spread(texts(), 10_000).len(), 40);
        assert!(spread(std::iter::empty(), 10).is_empty());
    }
}
