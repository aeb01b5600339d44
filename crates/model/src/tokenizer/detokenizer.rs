//! Tokens back to text, as they come.
//!
//! What has been returned is always whole characters; at most three bytes, the beginning of a character, are held.
//! Everything returned, put together, equals `String::from_utf8_lossy` of all the bytes put together.

use duet_types::TokenId;

use super::Tokenizer;

/// Incremental detokeniser. It owns its state and borrows no tokenizer, so a request can keep it for its life;
/// give it the same tokenizer every time.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    /// Bytes that begin a character and do not end it.
    held: Vec<u8>,
}

impl Detokenizer {
    /// The text that `token` completes; empty where it is a special token or ends inside a character.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: TokenId) -> String {
        let mut text = String::new();
        self.push_bytes(tokenizer.bytes(token), &mut text);
        text
    }

    /// The held bytes, as U+FFFD since they are no character. The detokeniser is as new afterwards.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8], text: &mut String) {
        self.held.extend_from_slice(bytes);
        let mut rest = self.held.as_slice();
        loop {
            let (valid, error) = match std::str::from_utf8(rest) {
                Ok(valid) => (valid, None),
                Err(error) => {
                    let valid = &rest[..error.valid_up_to()];
                    // Valid up to there, by the error's own word.
                    (std::str::from_utf8(valid).unwrap_or_default(), Some(error))
                }
            };
            text.push_str(valid);
            rest = &rest[valid.len()..];
            match error.and_then(|error| error.error_len()) {
                Some(broken) => {
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[broken..];
                }
                None => break,
            }
        }
        let held = rest.len();
        self.held.drain(..self.held.len() - held);
    }
}
