//! Folders of files that can be made again, of which those that were not used for longest go when there is no room.
//!
//! When a file was used is when it was last changed, or [`touch`]ed. Several processes may share a folder.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What the names of files that are being written end in, behind a dot.
pub const PARTIAL: &str = "partial";

/// Nobody writes one file for an hour.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// A file of such a folder. The one that was not used for longest is the smallest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptFile {
    /// When it was last used.
    pub used: SystemTime,
    /// How long it is.
    pub bytes: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// The files in a folder whose names end in `extension`, the one that was not used for longest first. None if there is no
/// such folder.
#[must_use]
pub fn kept(folder: &Path, extension: &str) -> Vec<KeptFile> {
    let mut kept: Vec<KeptFile> = files(folder).filter(|file| has_extension(&file.path, extension)).collect();
    kept.sort();
    kept
}

/// Removes files until `needed` bytes more are within `limit`, and what a process that was killed has left unfinished. False
/// if there is no room for so many at all; then nothing is removed.
///
/// # Errors
/// As the file system says.
pub fn make_room(folder: &Path, extension: &str, limit: u64, needed: u64) -> io::Result<bool> {
    for file in files(folder).filter(|file| has_extension(&file.path, PARTIAL)) {
        if file.used.elapsed().is_ok_and(|age| age > UNFINISHED) {
            remove(&file.path)?;
        }
    }
    if needed > limit {
        return Ok(false);
    }
    let kept = kept(folder, extension);
    let mut total: u64 = kept.iter().map(|file| file.bytes).sum();
    for file in &kept {
        if total <= limit - needed {
            break;
        }
        remove(&file.path)?;
        total -= file.bytes;
    }
    Ok(true)
}

/// Notes that a file was used now. A folder that may not be written is no error: the file only goes sooner.
pub fn touch(path: &Path) {
    let _ = std::fs::File::options().append(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes a file that may be gone already.
///
/// # Errors
/// As the file system says.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn files(folder: &Path) -> impl Iterator<Item = KeptFile> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        // Another process may have removed it.
        let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(KeptFile { used: metadata.modified().ok()?, bytes: metadata.len(), path: entry.path() })
    })
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().and_then(OsStr::to_str) == Some(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of ten bytes, used one after the other.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (age, name) in names.iter().rev().enumerate() {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 10]).unwrap();
            let used = SystemTime::now() - Duration::from_secs(4000 * age as u64);
            std::fs::File::options().append(true).open(path).unwrap().set_modified(used).unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        kept(folder, "a").iter().map(|file| file.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let folder = folder(&["x.partial", "1.a", "2.a", "other", "3.a", "y.partial"]);
        let folder = folder.path();
        assert_eq!(names(folder), ["1.a", "2.a", "3.a"]);
        touch(&folder.join("1.a"));
        assert!(make_room(folder, "a", 30, 10).unwrap());
        assert_eq!(names(folder), ["3.a", "1.a"]);
        assert!(
            folder.join("other").exists() && folder.join("y.partial").exists() && !folder.join("x.partial").exists()
        );
        assert!(make_room(folder, "a", 30, 10).unwrap());
        assert_eq!(names(folder), ["3.a", "1.a"]);
        assert!(!make_room(folder, "a", 30, 31).unwrap());
        assert_eq!(names(folder), ["3.a", "1.a"]);
        assert!(make_room(folder, "a", 30, 30).unwrap());
        assert!(names(folder).is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_has_nothing_and_room() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        assert!(kept(&none, "a").is_empty());
        assert!(make_room(&none, "a", 10, 10).unwrap());
    }
}
