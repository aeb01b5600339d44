//! The history: where answers are kept, and what is done with it.

use super::bytes;
use clap::{Args, Subcommand};
use duet_engine::{TaskName, UserName};
use duet_history::{Filter, Limits};
use duet_types::Bytes;
use std::path::PathBuf;

/// Whether and where answers are kept.
#[derive(Clone, Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Keep answers in FILE, to answer faster later; `off` keeps none [default: off for run, in the user's state
    /// directory for chat and serve]
    #[arg(long, value_name = "FILE|off", value_parser = choice)]
    history: Option<Choice>,
    /// Longest that this file becomes; what is oldest goes first
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = size)]
    history_size: Bytes,
}

/// What `--history` says.
#[derive(Clone, Debug)]
enum Choice {
    Off,
    File(PathBuf),
}

/// What a command does that is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryDefault {
    /// It keeps nothing.
    Off,
    /// It keeps answers in the user's state directory.
    On,
}

/// A history to open.
#[derive(Clone, Debug)]
pub(crate) struct HistoryPlace {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// How much it keeps.
    pub(crate) limits: Limits,
}

impl HistoryArgs {
    /// Where answers are kept; absent if they are not.
    pub(crate) fn place(&self, default: HistoryDefault) -> Option<HistoryPlace> {
        let path = match (&self.history, default) {
            (Some(Choice::Off), _) | (None, HistoryDefault::Off) => return None,
            (Some(Choice::File(path)), _) => path.clone(),
            (None, HistoryDefault::On) => default_path()?,
        };
        Some(HistoryPlace { path, limits: Limits { file: self.history_size, ..Limits::default() } })
    }
}

/// Where answers are kept unless the person says otherwise.
pub(crate) fn default_path() -> Option<PathBuf> {
    crate::state::path("history.redb")
}

/// `duet history`
#[derive(Debug, Args)]
pub(crate) struct HistoryCommandArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub(crate) command: HistoryCommand,
}

/// What to do with a history.
#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Show of whom and of which tasks there are answers
    List(ListArgs),
    /// Print the answers, a line of JSON for each
    Export(ExportArgs),
    /// Remove answers for good
    Purge(PurgeArgs),
}

/// `duet history list`
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Which answers.
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `duet history export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Which answers.
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Print the text of answers of this model, too
    #[arg(long, value_name = "MODEL")]
    pub(crate) text: Option<String>,
}

/// `duet history purge`
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Which answers.
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// All answers of everybody, and the lines that were typed in chats
    #[arg(long, conflicts_with_all = ["user", "task"])]
    pub(crate) all: bool,
}

/// Which answers, of which history.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// The history [default: the one in the user's state directory]
    #[arg(long = "history", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only this user's; '' for those without an API key
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only of this task; '' for those without a name and without instructions
    #[arg(long, value_name = "NAME")]
    task: Option<String>,
}

impl WhichArgs {
    /// The answers that are meant.
    pub(crate) fn filter(&self) -> Filter {
        Filter { user: self.user.as_deref().map(UserName::named), task: self.task.as_deref().map(TaskName::named) }
    }

    /// Whether all are meant, because nothing was said.
    pub(crate) fn is_all(&self) -> bool {
        self.user.is_none() && self.task.is_none()
    }
}

fn choice(text: &str) -> Result<Choice, String> {
    match text {
        "" => Err("expected a file, or `off`".to_owned()),
        "off" => Ok(Choice::Off),
        path => Ok(Choice::File(path.into())),
    }
}

fn size(text: &str) -> Result<Bytes, String> {
    bytes(text).and_then(|size| {
        if size >= Limits::FILE_MIN { Ok(size) } else { Err(format!("expected at least {}", Limits::FILE_MIN)) }
    })
}
