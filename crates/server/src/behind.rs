//! Requests that clients send behind an answer: titles, tags, suggestions of what to ask next. Nobody waits for these, and
//! clients do not say so.
//!
//! They are recognised by how their instructions begin: one of [`BEGINNINGS`] within the first [`HEAD_BYTES`] of the first
//! system message or of the last message of the user. What a client says of the class has the last word, as does
//! [`BehindAnswers::AsSaid`]. Requests that come before an answer (queries for a search, for example) are not among
//! them: the person waits for these.
//!
//! **Invariant:** only the class of a request changes, never what is answered.

use crate::class::Service;
use crate::config::BehindAnswers;
use crate::messages::{ChatMessage, Role};

/// Makes a request that is sent behind an answer background work, unless its client said its class.
pub(crate) fn demote(service: &mut Service, messages: &[ChatMessage], behind: BehindAnswers) {
    demote_instructed(service, instructions(messages), behind);
}

/// The same of a request with these instructions: where the system's begin, and the user's last ones.
pub(crate) fn demote_instructed<'a>(
    service: &mut Service,
    instructions: impl IntoIterator<Item = &'a str>,
    behind: BehindAnswers,
) {
    if behind == BehindAnswers::Background && instructions.into_iter().any(is_behind) {
        service.demote();
    }
}

fn instructions(messages: &[ChatMessage]) -> impl Iterator<Item = &str> {
    let system = messages.iter().find(|message| message.role == Role::System);
    let user = messages.iter().rfind(|message| message.role == Role::User);
    [system, user].into_iter().flatten().map(|message| message.content.as_str())
}

fn is_behind(instructions: &str) -> bool {
    let head = &instructions[..instructions.floor_char_boundary(HEAD_BYTES)];
    BEGINNINGS.iter().any(|beginning| head.contains(beginning))
}

/// Enough for a heading before the task.
const HEAD_BYTES: usize = 256;
/// What clients' instructions for such requests say at their beginning.
const BEGINNINGS: [&str; 7] = [
    // Open WebUI: title, tags, follow-ups.
    "Generate a concise, 3-5 word title",
    "Generate 1-3 broad tags",
    "Suggest 3-5 relevant follow-up questions",
    // OpenCode, and clients that were made of it.
    "You are a title generator",
    // Claude Code and others alike.
    "Generate a concise, sentence-case title",
    "Generate a short title for this conversation",
    // LibreChat.
    "Provide a concise, 5-word-or-less title",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(role: Role, content: &str, expected: bool) {
        let message = ChatMessage::said(role, content.to_owned());
        assert_eq!(instructions(&[message]).any(is_behind), expected);
    }

    #[test]
    fn titles_tags_and_suggestions_are_recognised() {
        check(Role::User, "### Task:\nGenerate a concise, 3-5 word title with an emoji.", true);
        check(Role::User, "### Task:\nGenerate 1-3 broad tags categorizing the chat.", true);
        check(Role::User, "### Task:\nSuggest 3-5 relevant follow-up questions.", true);
        check(Role::System, "You are a title generator. You output only a title.", true);
    }

    #[test]
    fn what_only_speaks_of_them_is_not() {
        check(Role::User, "Write me a title.", false);
        check(Role::Assistant, "You are a title generator", false);
        check(Role::User, &format!("{}Generate 1-3 broad tags", "é".repeat(200)), false);
    }
}
