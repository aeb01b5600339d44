//! `duet pull`: a model's path on stdout, after downloading it if need be; or the aliases.

use crate::cli::PullArgs;
use crate::failure::print;
use crate::models::{self, ALIASES, Alias, Role};
use duet_engine::MachineMemory;
use duet_types::Bytes;
use serde_json::json;

pub(super) fn pull(arguments: &PullArgs) -> anyhow::Result<()> {
    if arguments.list {
        return list(arguments.json);
    }
    let path = models::locate(&arguments.model)?;
    print(&format!("{}\n", path.display()))
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let memory = MachineMemory::now().available;
    if as_json {
        let object = |alias: &Alias| {
            let path = models::downloaded(alias);
            let fits = memory.map(|memory| needed(alias) <= memory);
            json!({
                "alias": alias.name,
                "about": alias.about,
                "bytes": alias.size.0,
                "memory_bytes": needed(alias).0,
                "memory_bytes_least": alias.memory_least().0,
                "embeds": alias.role == Role::Embeds,
                "sha256_is_built_in": alias.is_pinned(),
                "fits": fits,
                "path": path,
            })
        };
        return print(&format!("{}\n", json!({"models": ALIASES.iter().map(object).collect::<Vec<_>>()})));
    }
    let line = |alias: &Alias| {
        let place = match (models::downloaded(alias), memory) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(memory)) if alias.memory_least() > memory => format!("more than the {memory} that are free"),
            (None, Some(memory)) if needed(alias) > memory => with_experts_on_disk(alias, memory),
            (None, _) => "to be downloaded".to_owned(),
        };
        let sum = if alias.is_pinned() { "" } else { ", checked against the hub's sum" };
        let sizes = format!("{} to download{sum}, about {} of memory", alias.size, needed(alias));
        format!("{:<20} {}\n{:<20} {sizes}; {place}\n", alias.name, alias.about, "")
    };
    print(&ALIASES.iter().map(line).collect::<String>())
}

/// What stands in the way of a model that is larger than the memory that is free, and how it may run.
fn with_experts_on_disk(alias: &Alias, memory: Bytes) -> String {
    if alias.experts == Bytes(0) {
        return format!("more than the {memory} that are free");
    }
    format!("{memory} are free: leave some of its {} of experts on disk with --expert-memory", alias.experts)
}

/// An estimate: weights, and a quarter as much for buffers, keys and values of a short conversation.
fn needed(alias: &Alias) -> Bytes {
    Bytes(alias.size.0 + alias.size.0 / 4)
}
