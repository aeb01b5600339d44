//! What a person gave, and that is wrong.

/// What was given is wrong; the message names the flag, file or field and says what to do.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(pub(crate) String);
