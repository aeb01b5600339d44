//! `duet cache`: what duet keeps on disk, and the removal of what it makes again by itself.

use crate::cli::{CacheCommand, CacheListArgs, CachePruneArgs};
use crate::failure::print;
use crate::models;
use crate::terminal::plain;
use crate::weight_cache;
use anyhow::Context;
use duet_files::bounded::{self, KeptFile};
use duet_runtimes::GRAPH_EXTENSION;
use duet_types::Bytes;
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(super) fn cache(command: &CacheCommand) -> anyhow::Result<()> {
    match command {
        CacheCommand::List(arguments) => list(arguments),
        CacheCommand::Prune(arguments) => prune(arguments),
    }
}

/// What files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Models,
    Weights,
    Graphs,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Weights => "weights",
            Self::Graphs => "graphs",
        }
    }

    /// The model that a file is of, as far as its name says.
    fn model(self, path: &Path) -> Option<String> {
        let stem = path.file_stem()?.to_string_lossy();
        match self {
            Self::Models => Some(stem.into_owned()),
            // Behind it are digits, which tell models of one name apart.
            Self::Weights => stem.rsplit_once('-').map(|(model, _digits)| model.to_owned()),
            Self::Graphs => None,
        }
    }
}

/// Files of a kind.
struct Kind {
    format: Format,
    files: Vec<KeptFile>,
    /// Where paths are shown from.
    folder: PathBuf,
}

impl Kind {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn shown(&self, file: &KeptFile) -> String {
        let path = file.path.strip_prefix(&self.folder).unwrap_or(&file.path);
        plain(&path.to_string_lossy())
    }

    /// A line of JSON. The time of last use counts in seconds since 1970; where a system notes none, that is when the file was
    /// written.
    fn line(&self, file: &KeptFile) -> String {
        let last_used = file.used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let line = json!({
            "model": self.format.model(&file.path),
            "bytes": file.bytes,
            "format": self.format.name(),
            "last_used": last_used,
            "path": file.path.to_string_lossy(),
        });
        format!("{line}\n")
    }
}

/// What duet makes again by itself.
fn made_again() -> anyhow::Result<[Kind; 2]> {
    let kind = |format, extension, folder: PathBuf| Kind { format, files: bounded::kept(&folder, extension), folder };
    Ok([
        kind(Format::Weights, weight_cache::EXTENSION, weight_cache::folder()?),
        kind(Format::Graphs, GRAPH_EXTENSION, models::cache_folder("graphs")?),
    ])
}

fn list(arguments: &CacheListArgs) -> anyhow::Result<()> {
    let folder = models::cache_folder("models")?;
    let models = Kind { format: Format::Models, files: below(&folder), folder };
    let kinds: Vec<Kind> = [models].into_iter().chain(made_again()?).collect();
    if arguments.json {
        let lines = kinds.iter().flat_map(|kind| kind.files.iter().map(|file| kind.line(file)));
        return print(&lines.collect::<String>());
    }
    let mut text = String::new();
    for kind in &kinds {
        let _ = writeln!(
            text,
            "{}: {} in {} ({})",
            kind.format.name(),
            Bytes(kind.bytes()),
            kind.files.len(),
            kind.folder.display()
        );
        for file in kind.files.iter().rev() {
            let days = age(file.used).as_secs() / DAY;
            let _ = writeln!(text, "  {:>10}  {days:>4} days  {}", Bytes(file.bytes).to_string(), kind.shown(file));
        }
    }
    print(&text)
}

fn prune(arguments: &CachePruneArgs) -> anyhow::Result<()> {
    let unused = Duration::from_secs(u64::from(arguments.unused) * DAY);
    let (mut count, mut bytes) = (0, 0);
    for kind in made_again()? {
        for file in kind.files.iter().filter(|file| age(file.used) >= unused) {
            bounded::remove(&file.path).with_context(|| file.path.display().to_string())?;
            count += 1;
            bytes += file.bytes;
            if arguments.json {
                print(&kind.line(file))?;
            }
        }
    }
    if arguments.json {
        return Ok(());
    }
    print(&format!("{count} files removed, {}\n", Bytes(bytes)))
}

const DAY: u64 = 24 * 3600;

/// Nothing for what was used in the future.
fn age(used: SystemTime) -> Duration {
    used.elapsed().unwrap_or_default()
}

/// The models below a folder, in folders of their own.
fn below(folder: &Path) -> Vec<KeptFile> {
    let mut files = bounded::kept(folder, "gguf");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(below(&entry.path()));
        }
    }
    files.sort();
    files
}
