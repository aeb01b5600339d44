//! The commands of a chat.

use std::path::PathBuf;

/// A command to the program, not to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    /// Show the commands.
    Help,
    /// Begin a new conversation.
    Reset,
    /// Change the instructions; without text, show them.
    System(Option<String>),
    /// Have the last message answered again.
    Retry,
    /// Write the conversation to a file.
    Save(PathBuf),
    /// Leave.
    Exit,
}

/// Why a command was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlashError {
    /// No such command.
    #[error("there is no command {0}; /help lists them (a message may begin with //)")]
    Unknown(String),
    /// The command needs something to work on.
    #[error("use {0}")]
    Usage(&'static str),
}

/// What `/help` shows.
pub(crate) const HELP: &str = "  /reset        begin a new conversation
  /system TEXT  set the instructions and begin a new conversation; without TEXT, show them
  /retry        have the last message answered again
  /save FILE    write the conversation to FILE (.json, or else Markdown)
  /exit         leave, as does Ctrl-D
  A line that ends in \\ goes on in the next; \"\"\" opens and closes a message of many lines.
  Ctrl-C stops an answer. A message that begins with a slash is written with two.";

/// For completion.
pub(crate) const NAMES: [&str; 6] = ["/exit", "/help", "/reset", "/retry", "/save ", "/system "];

impl Slash {
    /// Reads a line that begins with a slash.
    pub(crate) fn parse(line: &str) -> Result<Self, SlashError> {
        let line = line.trim();
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match name {
            "/help" | "/?" => Ok(Self::Help),
            "/reset" => Ok(Self::Reset),
            "/system" => Ok(Self::System((!rest.is_empty()).then(|| rest.to_owned()))),
            "/retry" => Ok(Self::Retry),
            "/save" if rest.is_empty() => Err(SlashError::Usage("/save FILE")),
            "/save" => Ok(Self::Save(rest.into())),
            "/exit" | "/quit" => Ok(Self::Exit),
            unknown => Err(SlashError::Unknown(unknown.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_what_follows_the_name() {
        assert_eq!(Slash::parse("/system  be brief "), Ok(Slash::System(Some("be brief".into()))));
        assert_eq!(Slash::parse("/system"), Ok(Slash::System(None)));
        assert_eq!(Slash::parse("/save my talk.md"), Ok(Slash::Save("my talk.md".into())));
        assert_eq!(Slash::parse("/save"), Err(SlashError::Usage("/save FILE")));
        assert_eq!(Slash::parse("/sing"), Err(SlashError::Unknown("/sing".into())));
    }

    #[test]
    fn help_and_completion_know_every_command() {
        for name in NAMES {
            assert!(!matches!(Slash::parse(name), Err(SlashError::Unknown(_))), "{name}");
            assert!(name == "/help" || HELP.contains(name.trim()), "{name}");
        }
    }
}
