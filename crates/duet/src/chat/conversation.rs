//! What was said so far.
//!
//! Turns alternate: a question, its answer, and so on. A question without an answer is always the last turn and is
//! either answered or taken back before the next one.

use crate::prompt::{Message, Role};
use duet_files::WholeFile;
use std::io::{self, Write};
use std::path::Path;

/// A conversation with one person.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    system: Option<String>,
    turns: Vec<Message>,
}

impl Conversation {
    /// A new conversation with these instructions.
    pub(crate) fn new(system: Option<String>) -> Self {
        Self { system, turns: Vec::new() }
    }

    /// The instructions.
    pub(crate) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Forgets what was said, not the instructions.
    pub(crate) fn reset(&mut self) {
        self.turns.clear();
    }

    /// Adds a question.
    pub(crate) fn ask(&mut self, question: String) {
        self.turns.push(Message::user(question));
    }

    /// Adds the answer to the last question. An empty one takes the question back.
    pub(crate) fn answer(&mut self, answer: String) {
        if answer.is_empty() {
            self.turns.pop();
        } else {
            self.turns.push(Message::assistant(answer));
        }
    }

    /// Takes back the last answer and the question before it; returns the question.
    pub(crate) fn take_back(&mut self) -> Option<String> {
        while let Some(turn) = self.turns.pop() {
            if turn.role == Role::User {
                return Some(turn.content);
            }
        }
        None
    }

    /// Forgets the oldest question and its answer; `false` if only the last question is left.
    pub(crate) fn forget_oldest(&mut self) -> bool {
        let next = self.turns.iter().skip(1).position(|turn| turn.role == Role::User);
        next.is_some_and(|next| {
            self.turns.drain(..=next);
            true
        })
    }

    /// Instructions and turns, as a chat template takes them.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let system = self.system.clone().map(Message::system);
        system.into_iter().chain(self.turns.iter().cloned()).collect()
    }

    /// Writes the conversation to a new file: JSON messages if it is called `.json`, Markdown otherwise.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let text = match path.extension() {
            Some(extension) if extension == "json" => serde_json::to_string_pretty(&self.messages())? + "\n",
            _ => self.markdown(),
        };
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut file = WholeFile::begin(path)?;
        file.write_all(text.as_bytes())?;
        file.commit_new()
    }

    fn markdown(&self) -> String {
        let section = |message: &Message| format!("## {}\n\n{}\n", message.role.name(), message.content.trim());
        self.messages().iter().map(section).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_turns() -> Conversation {
        let mut conversation = Conversation::new(Some("be brief".into()));
        conversation.ask("one?".into());
        conversation.answer("1".into());
        conversation.ask("two?".into());
        conversation.answer("2".into());
        conversation
    }

    fn contents(conversation: &Conversation) -> Vec<String> {
        conversation.messages().into_iter().map(|message| message.content).collect()
    }

    #[test]
    fn the_oldest_turn_goes_first_and_the_instructions_stay() {
        let mut conversation = two_turns();
        conversation.ask("three?".into());
        assert!(conversation.forget_oldest());
        assert_eq!(contents(&conversation), ["be brief", "two?", "2", "three?"]);
        assert!(conversation.forget_oldest());
        assert_eq!(contents(&conversation), ["be brief", "three?"]);
        assert!(!conversation.forget_oldest());
        assert_eq!(contents(&conversation), ["be brief", "three?"]);
    }

    #[test]
    fn a_question_is_taken_back_with_its_answer() {
        let mut conversation = two_turns();
        assert_eq!(conversation.take_back().as_deref(), Some("two?"));
        assert_eq!(contents(&conversation), ["be brief", "one?", "1"]);
        conversation.ask("never mind".into());
        conversation.answer(String::new());
        assert_eq!(contents(&conversation), ["be brief", "one?", "1"]);
    }

    #[test]
    fn saving_never_overwrites() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("talk.json");
        two_turns().save(&path).unwrap();
        let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(saved[2], serde_json::json!({"role": "assistant", "content": "1"}));
        assert_eq!(two_turns().save(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let path = directory.path().join("talk.md");
        two_turns().save(&path).unwrap();
        assert!(std::fs::read_to_string(path).unwrap().starts_with("## system\n\nbe brief\n\n## user\n\none?\n"));
    }
}
