//! Purging: what is purged is gone from the file, too.
//!
//! A database keeps the bytes of removed rows in its free pages. So what stays is copied to a new file, which takes the
//! old one's place: whenever the process stops, the file is the old one or the new one.

use crate::error::HistoryError;
use crate::file::{HistoryFile, folder_of, sync_folder, temporary};
use crate::key::Filter;
use crate::tables::{ORDER, Row, TEXTS, Tables};
use redb::{ReadableDatabase, ReadableTable};

impl HistoryFile {
    /// Removes the tasks that a filter means. Returns how many interactions that were.
    ///
    /// # Errors
    /// [`HistoryError`] if the file cannot be read or written; it has what it had before.
    pub fn purge(&mut self, filter: &Filter) -> Result<u64, HistoryError> {
        let purged = self.list(filter).map(|task| task.interactions).sum();
        let failed = |error| HistoryError::io(&self.path, error);
        let file = temporary(&self.path)?;
        let mut fresh = Self::begin(file.path(), self.limits)?;
        self.copy_others(filter, &mut fresh).map_err(|error| HistoryError::of(&self.path, error))?;
        file.persist(&self.path).map_err(|error| failed(error.error))?;
        sync_folder(folder_of(&self.path)).map_err(failed)?;
        fresh.path.clone_from(&self.path);
        *self = fresh;
        Ok(purged)
    }

    /// Copies all that a filter does not mean, under the same numbers.
    fn copy_others(&self, filter: &Filter, to: &mut Self) -> Result<(), redb::Error> {
        for (key, row) in self.rows.iter().filter(|(key, _)| !filter.matches(key)) {
            to.rows.add(key.clone(), Row { id: row.id, ..Row::default() });
        }
        let reading = self.database.begin_read()?;
        let (texts, order) = (reading.open_table(TEXTS)?, reading.open_table(ORDER)?);
        let writing = to.database.begin_write()?;
        let mut tables = Tables::open(&writing)?;
        for entry in order.iter()? {
            let (sequence, entry) = entry?;
            let (sequence, (id, tokens, _)) = (sequence.value(), entry.value());
            if to.rows.key(id).is_some()
                && let Some(text) = texts.get((id, sequence))?
            {
                tables.insert(&mut to.rows, id, sequence, text.value(), tokens)?;
            }
        }
        tables.write_rows(&to.rows)?;
        Ok(writing.commit()?)
    }
}
