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
            let is_damaged = name.strip_prefix(&own).is_some_and(|rest| rest.starts_with(DAMAGED));
            let is_copy = name.starts_with(COPY[0]) && name.ends_with(COPY[1]);
            if (is_damaged || is_copy) && entry.file_type()?.is_file() {
                found.push(entry.path());
            }
        }
        found.sort();
        Ok(found)
    }
}

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
        let names = ["history-x1.new", "history.redb.damaged", "history.redb.damaged.2"];
        for name in names.iter().chain(&["chat_history", "other.redb.damaged", "history.redb.bak"]) {
            fs::write(folder.path().join(name), "answers").unwrap();
        }
        assert_eq!(history.aside().unwrap(), names.map(|name| folder.path().join(name)));
    }
}
