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

/// Files of a kind.
struct Kind {
    name: &'static str,
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
        let model = file.path.file_stem().map(|stem| stem.to_string_lossy());
        let (bytes, path) = (file.bytes, &file.path);
        let line = json!({"model": model, "bytes": bytes, "format": self.name, "last_used": last_used, "path": path});
        format!("{line}\n")
    }
}

/// What duet makes again by itself.
fn made_again() -> anyhow::Result<[Kind; 2]> {
    let kind = |name, extension, folder: PathBuf| Kind { name, files: bounded::kept(&folder, extension), folder };
    Ok([
        kind("weights", weight_cache::EXTENSION, weight_cache::folder()?),
        kind("graphs", GRAPH_EXTENSION, models::cache_folder("graphs")?),
    ])
}

fn list(arguments: &CacheListArgs) -> anyhow::Result<()> {
    let folder = models::cache_folder("models")?;
    let models = Kind { name: "models", files: below(&folder), folder };
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
            kind.name,
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
    let (mut count, mut bytes, mut lines) = (0, 0, String::new());
    for kind in made_again()? {
        for file in kind.files.iter().filter(|file| age(file.used) >= unused) {
            bounded::remove(&file.path).with_context(|| file.path.display().to_string())?;
            count += 1;
            bytes += file.bytes;
            lines += &kind.line(file);
        }
    }
    if arguments.json {
        return print(&lines);
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
