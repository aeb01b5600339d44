//! What lies beside a history and may hold answers as well: histories that were found damaged, and copies that a purge has left
//! that was killed.

use crate::error::HistoryError;
use crate::file::{HistoryFile, folder_of};
use std::fs;
use std::io;
use std::path::PathBuf;

impl HistoryFile {
    /// The files that lie beside this one and may hold answers. While it is open nobody else purges or begins one.
    ///
    /// # Errors
    /// [`HistoryError`] if its folder cannot be read.
    pub fn aside(&self) -> Result<Vec<PathBuf>, HistoryError> {
        self.found_aside().map_err(|error| HistoryError::io(&self.path, error))
    }

    fn found_aside(&self) -> io::Result<Vec<PathBuf>> {
        let own = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for entry in fs::read_dir(folder_of(&self.path))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_damaged = name.strip_prefix(&own).is_some_and(is_damaged);
            if (is_damaged || is_copy(&name)) && entry.file_type()?.is_file() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Whether this is behind the name of a history that duet has set aside. Who removes these removes nobody's own copies.
fn is_damaged(rest: &str) -> bool {
    let Some(number) = rest.strip_prefix(DAMAGED) else { return false };
    number.is_empty() || number.strip_prefix('.').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether this is the name of a copy as duet makes them.
fn is_copy(name: &str) -> bool {
    let random = name.strip_prefix(COPY[0]).and_then(|rest| rest.strip_suffix(COPY[1]));
    random.is_some_and(|random| random.len() == RANDOM && random.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Characters that are drawn between the two, by `tempfile`.
const RANDOM: usize = 6;
/// Behind the name of a history that was found damaged, and before its number.
pub(crate) const DAMAGED: &str = ".damaged";
/// Around the name of a history that is to take the place of another.
pub(crate) const COPY: [&str; 2] = ["history-", ".new"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn what_may_hold_answers_is_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.redb");
        let history = HistoryFile::open(&path, Limits::default()).unwrap();
        assert!(history.aside().unwrap().is_empty());
        let names = ["history.redb.damaged", "history.redb.damaged.2"];
        let others =
            ["chat_history", "other.redb.damaged", "history.redb.bak", "history.redb.damaged.old", "history-x.new"];
        for name in names.iter().chain(&others) {
            fs::write(folder.path().join(name), "answers").unwrap();
        }
        let (_, copy) = crate::file::temporary(&path).unwrap().keep().unwrap();
        let mut expected: Vec<_> = names.iter().map(|name| folder.path().join(name)).chain([copy]).collect();
        expected.sort();
        assert_eq!(history.aside().unwrap(), expected);
    }
}
