//! Whether a file in the cache is the one whose checksum is pinned, or that the hub gave.
//!
//! Hashing a model takes as long as reading all of it, so what came of it is kept in a note beside the file: the sum, and
//! the length and the time of change that the file had then. While these hold the file is believed; when one differs, or
//! there is no note, it is hashed again. What changes bytes and keeps both is not noticed: this is for damage and for
//! mistaken files, not for malice.

use super::partial::{BUFFER_BYTES, hex};
use crate::progress::Progress;
use duet_files::sealed;
use duet_types::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What a file is, beside a pinned sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It has the sum.
    Right,
    /// It has another one.
    Wrong {
        /// Which.
        actual: String,
    },
}

/// What a note says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    sha256: String,
    bytes: u64,
    /// Nanoseconds since 1970. Absent where the file system keeps no times: then every check is in full.
    changed: Option<u64>,
}

/// Compares the file at `path` with the sum that it must have: by its note, or else by reading all of it.
pub(crate) fn check(path: &Path, sha256: &str) -> io::Result<Finding> {
    let now = Note::of(path, sha256)?;
    if now.changed.is_some() && sealed::read(&note_path(path), KIND) == Some(now) {
        return Ok(Finding::Right);
    }
    check_in_full(path, sha256)
}

/// The same by reading all of the file, whatever its note says.
pub(crate) fn check_in_full(path: &Path, sha256: &str) -> io::Result<Finding> {
    let actual = hash(path)?;
    if actual != sha256 {
        return Ok(Finding::Wrong { actual });
    }
    note(path, sha256);
    Ok(Finding::Right)
}

/// The sum that the file at `path` had when it came, if it was downloaded.
pub(crate) fn noted(path: &Path) -> Option<String> {
    let note: Note = sealed::read(&note_path(path), KIND)?;
    Some(note.sha256)
}

/// Keeps that the file at `path` has this sum. Failing to costs the time to read the file again.
pub(crate) fn note(path: &Path, sha256: &str) {
    let written = Note::of(path, sha256).and_then(|note| sealed::write(&note_path(path), KIND, &note));
    if let Err(error) = written {
        tracing::info!(%error, "that the model was verified is not kept");
    }
}

/// Takes away what was kept about the file at `path`.
pub(crate) fn forget(path: &Path) {
    // Without the file it says nothing.
    let _ = fs::remove_file(note_path(path));
}

impl Note {
    fn of(path: &Path, sha256: &str) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Ok(Self { sha256: sha256.to_owned(), bytes: metadata.len(), changed })
    }
}

const KIND: &str = "verified model 1";

/// No model's name begins with a dot, so this is no model's.
fn note_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.verified"))
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let progress = Progress::bytes("verifying", &name, Bytes(file.metadata()?.len()));
    let (mut hasher, mut done) = (Sha256::new(), 0);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        done += count as u64;
        progress.set(Bytes(done));
    }
    progress.finish("verified");
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn sum(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    #[test]
    fn a_file_is_read_once_and_again_when_it_looks_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.gguf");
        fs::write(&path, "GGUF right").unwrap();
        let expected = sum(b"GGUF right");
        assert_eq!(check(&path, &expected).unwrap(), Finding::Right);

        // Other bytes with the old length and time are not looked at: the file was not read.
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        let touch = |to: SystemTime| File::options().write(true).open(&path).unwrap().set_modified(to).unwrap();
        fs::write(&path, "GGUF wrong").unwrap();
        touch(changed);
        assert_eq!(check(&path, &expected).unwrap(), Finding::Right);

        let wrong = Finding::Wrong { actual: sum(b"GGUF wrong") };
        touch(changed + Duration::from_secs(1));
        assert_eq!(check(&path, &expected).unwrap(), wrong);
        fs::write(&path, "GGUF wrong and longer").unwrap();
        touch(changed);
        assert_eq!(check(&path, &expected).unwrap(), Finding::Wrong { actual: sum(b"GGUF wrong and longer") });
        // Another pin is another question.
        fs::write(&path, "GGUF right").unwrap();
        touch(changed);
        assert_eq!(check(&path, &sum(b"other")).unwrap(), Finding::Wrong { actual: expected.clone() });
        assert_eq!(check(&path, &expected).unwrap(), Finding::Right);
    }

    #[test]
    fn a_damaged_note_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.gguf");
        fs::write(&path, "GGUF").unwrap();
        assert_eq!(check(&path, &sum(b"GGUF")).unwrap(), Finding::Right);
        let note = fs::read_to_string(note_path(&path)).unwrap();
        let other = sum(b"FUGG");
        fs::write(note_path(&path), note.replace(&sum(b"GGUF"), &other)).unwrap();
        assert_eq!(check(&path, &other).unwrap(), Finding::Wrong { actual: sum(b"GGUF") });
    }
}
