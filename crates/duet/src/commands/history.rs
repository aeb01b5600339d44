//! `duet history`: what is kept of answers, for people and scripts, and its removal. No server may have it open.

use crate::bad_input::BadInput;
use crate::chat::forget_lines;
use crate::cli::{ExportArgs, HistoryCommand, HistoryCommandArgs, ListArgs, PurgeArgs, WhichArgs, default_history};
use crate::failure::{StdoutClosed, print};
use crate::models;
use crate::progress::eprintln_quiet;
use crate::terminal::plain;
use anyhow::Context;
use duet_engine::model_fingerprint;
use duet_history::{HistoryError, HistoryFile, Limits, ModelFingerprint, TaskSummary};
use duet_model::tokenizer::Tokenizer;
use duet_types::TokenId;
use serde_json::{Value, json};
use std::io::{BufWriter, ErrorKind, Write};

pub(super) fn history(arguments: &HistoryCommandArgs) -> anyhow::Result<()> {
    match &arguments.command {
        HistoryCommand::List(arguments) => list(arguments),
        HistoryCommand::Export(arguments) => export(arguments),
        HistoryCommand::Purge(arguments) => purge(arguments),
    }
}

fn list(arguments: &ListArgs) -> anyhow::Result<()> {
    let history = open(&arguments.which)?;
    let filter = arguments.which.filter();
    let tasks: Vec<_> = history.iter().flat_map(|history| history.list(&filter)).collect();
    if !arguments.json {
        return if tasks.is_empty() { Ok(()) } else { print(&table(&tasks)) };
    }
    let tasks: Vec<_> = tasks.iter().map(object).collect();
    print(&format!("{}\n", json!({"tasks": tasks})))
}

fn object(task: &TaskSummary) -> Value {
    json!({
        "user": task.key.user.as_str(),
        "task": task.key.task.as_str(),
        "model": task.key.model.to_string(),
        "answers": task.interactions,
        "tokens": task.tokens.0,
        "bytes": task.bytes.0,
    })
}

fn export(arguments: &ExportArgs) -> anyhow::Result<()> {
    let tokenizer = arguments.text.as_deref().map(tokenizer).transpose()?;
    let Some(history) = open(&arguments.which)? else { return Ok(()) };
    let text = |model: ModelFingerprint, tokens: &[TokenId]| {
        let (_, tokenizer) = tokenizer.as_ref().filter(|(fingerprint, _)| *fingerprint == model)?;
        Some(tokenizer.decode(tokens))
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let exported = history.export(&arguments.which.filter(), &mut out, text);
    match exported.and_then(|_| out.flush().map_err(HistoryError::Export)) {
        Err(HistoryError::Export(error)) if error.kind() == ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        ended => Ok(ended?),
    }
}

fn purge(arguments: &PurgeArgs) -> anyhow::Result<()> {
    if arguments.which.is_all() && !arguments.all {
        return Err(BadInput("what is to be purged? Say --user NAME, --task NAME, or --all".to_owned()).into());
    }
    if arguments.all && arguments.which.file.is_none() {
        forget_lines().context("cannot remove what was typed in chats")?;
    }
    let Some(mut history) = open(&arguments.which)? else { return Ok(()) };
    let purged = history.purge(&arguments.which.filter())?;
    for path in &history.aside()? {
        if arguments.all {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        } else {
            eprintln_quiet(&format!("{}: a damaged history, which --all would remove", path.display()));
        }
    }
    print(&format!("{purged} answers purged\n"))
}

/// The history that is meant; none if the default one was not begun yet.
fn open(which: &WhichArgs) -> anyhow::Result<Option<HistoryFile>> {
    let path = match (&which.file, default_history()) {
        (Some(path), _) if !path.exists() => {
            return Err(BadInput(format!("--history {}: no such file", path.display())).into());
        }
        (Some(path), _) => path.clone(),
        (None, None) => return Err(BadInput("no home directory; name the file with --history".to_owned()).into()),
        (None, Some(path)) if !path.exists() => {
            eprintln_quiet(&format!("there is no history yet ({})", path.display()));
            return Ok(None);
        }
        (None, Some(path)) => path,
    };
    Ok(Some(HistoryFile::open(&path, Limits::default())?))
}

/// The tokenizer of a model, and what its answers are kept under.
fn tokenizer(model: &str) -> anyhow::Result<(ModelFingerprint, Tokenizer)> {
    let (name, tokenizer) = duet_model::open_tokenizer(&models::locate(model)?)?;
    Ok((model_fingerprint(&name, &tokenizer), tokenizer))
}

fn table(tasks: &[TaskSummary]) -> String {
    let shown = |name: &str| if name.is_empty() { "-".to_owned() } else { plain(name) };
    let names: Vec<_> =
        tasks.iter().map(|task| (shown(task.key.user.as_str()), shown(task.key.task.as_str()))).collect();
    let width = |title: &str, names: &mut dyn Iterator<Item = &String>| {
        names.map(|name| name.chars().count()).chain([title.len()]).max().unwrap_or(0)
    };
    let user_width = width("user", &mut names.iter().map(|(user, _)| user));
    let task_width = width("task", &mut names.iter().map(|(_, task)| task));
    let mut page = format!(
        "{:<user_width$}  {:<task_width$}  {:<16}  {:>8}  {:>9}  {:>10}\n",
        "user", "task", "model", "answers", "tokens", "size"
    );
    for (task, (user, name)) in tasks.iter().zip(&names) {
        page += &format!(
            "{user:<user_width$}  {name:<task_width$}  {}  {:>8}  {:>9}  {:>10}\n",
            task.key.model,
            task.interactions,
            task.tokens.0,
            task.bytes.to_string()
        );
    }
    page
}
