//! Where `duet serve` finds its API keys: a file, the environment, or both.

use crate::bad_input::BadInput;
use crate::progress::eprintln_quiet;
use anyhow::Context;
use duet_server::{ApiKeys, KeyListError};
use std::env::{self, VarError};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The keys of `file` and of `DUET_API_KEY`; none if neither is given.
pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<ApiKeys> {
    let mut keys = file.map_or_else(|| Ok(ApiKeys::default()), from_file)?;
    match env::var(VARIABLE) {
        // Set to nothing it would open a server that was meant to be closed: `add` refuses that.
        Ok(key) => keys.add(VARIABLE, &key).map_err(|error| BadInput(format!("{VARIABLE}: {error}")))?,
        Err(VarError::NotUnicode(_)) => return Err(BadInput(format!("{VARIABLE} is not text")).into()),
        Err(VarError::NotPresent) => {}
    }
    Ok(keys)
}

fn from_file(path: &Path) -> anyhow::Result<ApiKeys> {
    let shown = path.display();
    let wrong = |why: String| BadInput(format!("--api-key-file {shown}{why}"));
    let mut file = File::open(path).map_err(|error| wrong(format!(": {error}")))?;
    let mut text = String::new();
    let read = file.by_ref().take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| wrong(format!(": {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!(": larger than {FILE_BYTES_MAX} bytes")).into());
    }
    let keys = ApiKeys::parse(&text).map_err(|error| match error {
        KeyListError::Line { .. } => wrong(format!(", {error}")),
        KeyListError::Empty => wrong(format!(": {error}")),
    })?;
    if is_open_to_all(&file).with_context(|| format!("cannot look at {shown}"))? {
        eprintln_quiet(&format!("warning: every user of this machine can read {shown}; `chmod 600` it"));
    }
    Ok(keys)
}

#[cfg(unix)]
fn is_open_to_all(file: &File) -> std::io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.mode() & 0o004 != 0)
}

/// Other systems' permissions are not looked at.
#[cfg(not(unix))]
fn is_open_to_all(_: &File) -> std::io::Result<bool> {
    Ok(false)
}

/// Holds one key.
const VARIABLE: &str = "DUET_API_KEY";
/// More than the keys allowed can take, comments included.
const FILE_BYTES_MAX: u64 = 4 << 20;
