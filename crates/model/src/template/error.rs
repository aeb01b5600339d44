//! Why a conversation could not become a prompt.

use std::fmt;

/// A template that cannot be read, or that would not render.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is not Jinja, or uses what duet does not have.
    #[error("the chat template cannot be read: {0}")]
    Syntax(String),
    /// The template itself refused the messages, with these words.
    #[error("{0}")]
    Raised(String),
    /// The template failed on these messages, for example because it needs a field that they lack.
    #[error("the chat template failed: {0}")]
    Render(String),
    /// The template took more steps, nested deeper or wrote more than any conversation needs.
    #[error("the chat template was stopped: {0}")]
    Limit(&'static str),
    /// The system would not give a thread to render on.
    #[error("no thread for the chat template: {0}")]
    Thread(#[from] std::io::Error),
}

/// Carries the words of `raise_exception` through the engine's own errors.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Raised {}

impl TemplateError {
    /// What an error at render time means to the caller.
    pub(super) fn from_render(error: &minijinja::Error) -> Self {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(cause) = source {
            if let Some(Raised(words)) = cause.downcast_ref() {
                return Self::Raised(words.clone());
            }
            let kind = cause.downcast_ref::<minijinja::Error>().map(minijinja::Error::kind);
            if kind == Some(minijinja::ErrorKind::OutOfFuel) {
                return Self::Limit("it takes too many steps");
            }
            source = cause.source();
        }
        Self::Render(in_full(error))
    }

    pub(super) fn from_syntax(error: &minijinja::Error) -> Self {
        Self::Syntax(in_full(error))
    }
}

/// An error and its causes on one line.
fn in_full(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
