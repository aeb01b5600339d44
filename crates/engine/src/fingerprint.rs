//! What tells a model from others in the history.

use duet_history::ModelFingerprint;
use duet_model::tokenizer::Tokenizer;
use duet_types::TokenId;

/// Of a model's name and its tokens: under other tokens, kept ids would be another text. Takes milliseconds.
#[must_use]
pub fn model_fingerprint(name: &str, tokenizer: &Tokenizer) -> ModelFingerprint {
    let tokens = (0..tokenizer.vocabulary()).map(|id| {
        let token = TokenId(id as u32);
        tokenizer.text_of_special(token).map_or_else(|| tokenizer.bytes(token), str::as_bytes)
    });
    ModelFingerprint::of(name, tokens)
}
