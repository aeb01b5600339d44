//! What a request says of its tools.

use serde_json::Value;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// How the model calls it.
    pub name: String,
    /// What it is for, in words; may be empty.
    pub description: String,
    /// JSON schema of its arguments. `null` and `{}` are an object of whatever keys.
    pub parameters: Value,
    /// What becomes of keywords of the schema that no grammar can enforce.
    pub strict: Strictness,
}

/// What becomes of keywords of a schema that no grammar can enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// They are refused, so that everything that is written is valid.
    Strict,
    /// They are left out, so that what is written is valid but for them. Tools that clients bring along have all kinds.
    #[default]
    Loose,
}

/// Whether the model must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// It must not.
    None,
    /// It may.
    #[default]
    Auto,
    /// It must, whichever tool.
    Required,
    /// It must, this tool, once.
    Named(String),
}

/// How many calls a turn may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parallel {
    /// At most one.
    One,
    /// Any number.
    #[default]
    Many,
}
