//! Where lines come from: a person at a terminal, with editing and history, or a pipe.

use super::slash::NAMES;
use crate::state;
use anyhow::Context as _;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};
use std::fs;
use std::io::{self, BufRead, IsTerminal, StdinLock, stdin, stdout};
use std::path::PathBuf;

/// A source of lines.
pub(crate) enum Input {
    /// A person types.
    Terminal(Box<Terminal>),
    /// Another program, or a file.
    Pipe(StdinLock<'static>),
}

/// What becomes of the lines that a person types, beside the answers to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    /// The next chat has them, too.
    Kept,
    /// They end with the program.
    Forgotten,
}

/// What reading a line brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its newline.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the pipe.
    End,
}

/// Line editing with a history that outlives the program.
pub(crate) struct Terminal {
    editor: Editor<Commands, FileHistory>,
    history: Option<PathBuf>,
}

impl Input {
    /// The terminal, if there is one to read from and to write to.
    pub(crate) fn open(lines: Lines) -> anyhow::Result<Self> {
        if !(stdin().is_terminal() && stdout().is_terminal()) {
            return Ok(Self::Pipe(stdin().lock()));
        }
        Ok(Self::Terminal(Box::new(Terminal::open(lines)?)))
    }

    /// Whether a person sits there.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Reads the next line. Only a terminal shows `prompt`.
    pub(crate) fn read(&mut self, prompt: &str) -> anyhow::Result<Line> {
        match self {
            Self::Terminal(terminal) => terminal.read(prompt),
            Self::Pipe(stdin) => {
                let mut line = String::new();
                let count = stdin.read_line(&mut line).context("cannot read stdin")?;
                let text = line.trim_end_matches(['\n', '\r']).to_owned();
                Ok(if count == 0 { Line::End } else { Line::Text(text) })
            }
        }
    }
}

impl Terminal {
    fn open(lines: Lines) -> anyhow::Result<Self> {
        let config = Config::builder().max_history_size(HISTORY_MAX)?.auto_add_history(true).build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history)?;
        editor.set_helper(Some(Commands));
        let history = if lines == Lines::Kept { history_path() } else { None };
        if let Some(path) = &history {
            // The first chat has no history yet; without one, chatting works just as well.
            if let Err(error) = editor.load_history(path) {
                tracing::debug!(%error, path = %path.display(), "no history");
            }
        }
        Ok(Self { editor, history })
    }

    fn read(&mut self, prompt: &str) -> anyhow::Result<Line> {
        match self.editor.readline(prompt) {
            Ok(text) => {
                // Now, not at the end: the program may be killed.
                if let Some(path) = &self.history
                    && let Err(error) = self.editor.append_history(path)
                {
                    tracing::debug!(%error, path = %path.display(), "history not saved");
                }
                Ok(Line::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(error).context("cannot read the terminal"),
        }
    }
}

/// More than anybody scrolls back through, and read in no time.
const HISTORY_MAX: usize = 2000;

/// Where lines are kept: the user's state directory, which is made if need be.
fn history_path() -> Option<PathBuf> {
    let path = state::path(LINES)?;
    fs::create_dir_all(path.parent()?).ok()?;
    Some(path)
}

/// Removes the lines that earlier chats kept.
pub(crate) fn forget_lines() -> io::Result<()> {
    match state::path(LINES).map(fs::remove_file) {
        None | Some(Ok(())) => Ok(()),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Some(Err(error)) => Err(error),
    }
}

const LINES: &str = "chat_history";

/// Tab completes commands.
struct Commands;

impl Completer for Commands {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let matches = NAMES.iter().filter(|name| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, matches.map(|name| (*name).to_owned()).collect()))
    }
}

impl Hinter for Commands {
    type Hint = String;
}

impl Highlighter for Commands {}
impl Validator for Commands {}
impl Helper for Commands {}
