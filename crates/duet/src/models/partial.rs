//! A file on its way into the cache.
//!
//! The bytes collect in `NAME.<first digits of the sha256>.partial`, are hashed as they are written, and take their
//! real name only after the sum was checked and the disk has them. So a file with its real name is always whole, and
//! the remains of one download can never be continued with another file's bytes.

use super::fetch::FetchError;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// An unfinished file. Dropping it keeps the bytes, so that a later download resumes.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
    hasher: Sha256,
    magic: Vec<u8>,
    len: u64,
}

impl Partial {
    /// Opens the partial file of `target`, taking up what an earlier try left. Reads those bytes once.
    pub(crate) fn resume(target: &Path, sha256: &str) -> Result<Self, FetchError> {
        let path = partial_path(target, sha256);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(FetchError::disk(&path))?;
        let mut partial = Self {
            file,
            target: target.to_owned(),
            hasher: Sha256::new(),
            magic: Vec::with_capacity(MAGIC.len()),
            len: 0,
            path: path.clone(),
        };
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match partial.file.read(&mut buffer).map_err(FetchError::disk(&path))? {
                0 => return Ok(partial),
                count => partial.note(&buffer[..count]),
            }
        }
    }

    /// Opens an empty partial file.
    pub(crate) fn create(target: &Path, sha256: &str) -> Result<Self, FetchError> {
        let mut partial = Self::resume(target, sha256)?;
        partial.restart()?;
        Ok(partial)
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Forgets all bytes.
    pub(crate) fn restart(&mut self) -> Result<(), FetchError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(FetchError::disk(&self.path))?;
        self.hasher = Sha256::new();
        self.magic.clear();
        self.len = 0;
        Ok(())
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        self.file.write_all(bytes).map_err(FetchError::disk(&self.path))?;
        self.note(bytes);
        Ok(())
    }

    /// Checks the sum and gives the file its real name. A file with wrong bytes is removed.
    pub(crate) fn commit(self, expected: Option<&str>) -> Result<PathBuf, FetchError> {
        let actual = hex(&self.hasher.clone().finalize());
        if let Some(expected) = expected.filter(|expected| **expected != actual) {
            let expected = expected.to_owned();
            self.discard();
            return Err(FetchError::Checksum { expected, actual });
        }
        if self.magic != MAGIC {
            self.discard();
            return Err(FetchError::NotGguf);
        }
        self.file.sync_all().map_err(FetchError::disk(&self.path))?;
        fs::rename(&self.path, &self.target).map_err(FetchError::disk(&self.target))?;
        sync_directory(&self.target);
        remove_leftovers(&self.target);
        Ok(self.target)
    }

    /// Removes the bytes from the disk.
    pub(crate) fn discard(self) {
        // Failing to remove it costs disk space, never correctness: its name says that it is partial.
        let _ = fs::remove_file(&self.path);
    }

    fn note(&mut self, bytes: &[u8]) {
        let missing = MAGIC.len() - self.magic.len();
        self.magic.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
    }
}

/// Bytes that an earlier try has left of `target`.
pub(crate) fn left_of(target: &Path, sha256: &str) -> u64 {
    fs::metadata(partial_path(target, sha256)).map_or(0, |metadata| metadata.len())
}

/// Large enough that system calls do not count beside hashing, small enough for the cache.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

const MAGIC: &[u8] = b"GGUF";

/// Lower-case hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn partial_path(target: &Path, sha256: &str) -> PathBuf {
    let digits = sha256.get(..16).unwrap_or(sha256);
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{digits}.partial"));
    name.into()
}

/// Partial files of other versions of `target` are of no use once it is whole.
fn remove_leftovers(target: &Path) {
    let (Some(directory), Some(name)) = (target.parent(), target.file_name().and_then(|name| name.to_str())) else {
        return;
    };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let leftover = file_name
            .to_str()
            .and_then(|file_name| file_name.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".partial"));
        if leftover {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Makes the rename itself durable. Not every platform can sync a directory; the file is whole either way.
fn sync_directory(target: &Path) {
    if let Some(directory) = target.parent() {
        let _: io::Result<()> = File::open(directory).and_then(|directory| directory.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    #[test]
    fn a_resumed_file_is_checked_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("m.gguf");
        let expected = sum(b"GGUF rest");
        Partial::resume(&target, &expected).unwrap().append(b"GG").unwrap();
        assert!(!target.exists());

        let mut partial = Partial::resume(&target, &expected).unwrap();
        assert_eq!(partial.len(), 2);
        partial.append(b"UF rest").unwrap();
        assert_eq!(partial.commit(Some(&expected)).unwrap(), target);
        assert_eq!(fs::read(&target).unwrap(), b"GGUF rest");
    }

    #[test]
    fn wrong_bytes_never_get_the_real_name_and_leave_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("m.gguf");
        let expected = sum(b"GGUF right");
        let mut partial = Partial::create(&target, &expected).unwrap();
        partial.append(b"GGUF wrong").unwrap();
        assert!(matches!(partial.commit(Some(&expected)), Err(FetchError::Checksum { .. })));

        let mut partial = Partial::create(&target, "page").unwrap();
        partial.append(b"<html>").unwrap();
        assert!(matches!(partial.commit(None), Err(FetchError::NotGguf)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_finished_file_takes_leftovers_of_other_versions_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("m.gguf");
        Partial::create(&target, &"a".repeat(64)).unwrap().append(b"GGUF old").unwrap();
        let mut partial = Partial::create(&target, &"b".repeat(64)).unwrap();
        partial.append(b"GGUF new").unwrap();
        partial.commit(None).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
