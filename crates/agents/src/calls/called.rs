//! What the text of a block turns out to be.

/// A call that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) name: String,
    /// A JSON object, as the model wrote it but for whitespace between its parts.
    pub(super) arguments: String,
}

/// What the beginning of a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It may become calls.
    More,
    /// It is these, to its last character.
    Calls(Vec<Called>),
    /// It is none.
    Broken,
}
