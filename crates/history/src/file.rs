//! The file: a database of texts by task, changed in transactions.
//!
//! The database (redb) is copy-on-write, and every transaction has its default durability, `Immediate`: the disk is waited
//! for before a commit returns. So what was committed is there after the process or the machine stopped at any write, as
//! long as the disk keeps what it was waited for; the tests kill processes, and replay the writes of a run in any order
//! that a disk may choose, torn at sectors. The file is checked as a whole when it is opened: what something else damaged
//! is found then, not later, and what can be found of older states is not searched for. The process that has it open is
//! the only one.
//! **Invariant:** a change is there in full or not at all; no task has more tokens than its limit, and the file is no
//! longer than its own: the oldest texts go first. Nobody but the file's owner may read it.

use crate::aside::{COPY, DAMAGED};
use crate::error::{FORMAT, HistoryError};
use crate::interaction::{Interaction, Text};
use crate::key::{Filter, TaskKey};
use crate::limits::Limits;
use crate::tables::{self, FORMAT_KEY, META, Rows, TASKS, TEXTS, Tables};
use duet_types::{Bytes, Tokens};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableHandle};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A history in a file. Its methods read and write; none is for a thread that must not wait.
#[derive(Debug)]
pub struct HistoryFile {
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) database: Database,
    pub(crate) rows: Rows,
}

/// What there is of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    /// Whose, what for, and which model's.
    pub key: TaskKey,
    /// Answers.
    pub interactions: u64,
    /// Tokens of the answers and of the ends of their prompts.
    pub tokens: Tokens,
    /// What these take of the file's limit.
    pub bytes: Bytes,
}

impl HistoryFile {
    /// Opens a history, or begins one where there is no file. Reads all of it: milliseconds for a megabyte.
    ///
    /// # Errors
    /// [`HistoryError`] if another process has it open, if it is no history or damaged, or if the system refuses.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, HistoryError> {
        prepare(path)?;
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .open(path)
            .map_err(|error| HistoryError::of(path, error))?;
        let mut history = Self { path: path.to_owned(), limits, database, rows: Rows::default() };
        history.check_format()?;
        history.rows = history.read_rows()?;
        Ok(history)
    }

    /// As [`Self::open`]; but a damaged file gets another name beside it, which is returned, and a new history begins.
    ///
    /// # Errors
    /// As of [`Self::open`]. A file that is no history is left alone.
    pub fn open_or_begin_anew(path: &Path, limits: Limits) -> Result<(Self, Option<PathBuf>), HistoryError> {
        match Self::open(path, limits) {
            Err(HistoryError::Damaged { .. }) => {}
            opened => return Ok((opened?, None)),
        }
        let failed = |error| HistoryError::io(path, error);
        // One process at a time: the second one finds what the first one began. Where folders have no locks, the file
        // has: nobody renames one that another process has open, since it is not found damaged then.
        let folder = File::open(folder_of(path)).map_err(failed)?;
        let _ = folder.lock();
        match Self::open(path, limits) {
            Err(HistoryError::Damaged { .. }) => {}
            opened => return Ok((opened?, None)),
        }
        let aside = unused_name(path).map_err(failed)?;
        fs::rename(path, &aside).map_err(failed)?;
        Ok((Self::open(path, limits)?, Some(aside)))
    }

    /// Begins a history in an empty file. If the process is killed meanwhile it is neither empty nor a history.
    pub(crate) fn begin(path: &Path, limits: Limits) -> Result<Self, HistoryError> {
        let create = || Builder::new().set_cache_size(CACHE_BYTES).create(path);
        Self::begin_on(path, limits, create)
    }

    fn begin_on(
        path: &Path,
        limits: Limits,
        create: impl FnOnce() -> Result<Database, redb::DatabaseError>,
    ) -> Result<Self, HistoryError> {
        let begin = || -> Result<_, redb::Error> {
            let database = create()?;
            let transaction = database.begin_write()?;
            transaction.open_table(META)?.insert(FORMAT_KEY, FORMAT)?;
            // They exist from now on.
            drop(Tables::open(&transaction)?);
            transaction.commit()?;
            Ok(database)
        };
        let database = begin().map_err(|error| HistoryError::of(path, error))?;
        Ok(Self { path: path.to_owned(), limits, database, rows: Rows::default() })
    }

    /// Adds interactions, each in full or not at all, and removes what is too much then. They are on disk when it returns.
    ///
    /// # Errors
    /// [`HistoryError`] if the file cannot be written; those before the error are there.
    pub fn append(&mut self, interactions: &[Interaction]) -> Result<(), HistoryError> {
        let mut rest = interactions;
        while !rest.is_empty() {
            let mut rows = std::mem::take(&mut self.rows);
            let written = self.write(&mut rows, rest);
            self.rows = rows;
            let written = written.map_err(|error| {
                // What is counted is what is there. A file that cannot be read either is of no more use.
                self.rows = self.read_rows().unwrap_or_default();
                HistoryError::of(&self.path, error)
            });
            rest = &rest[written?..];
        }
        Ok(())
    }

    /// The tasks that a filter means, by their keys.
    pub fn list(&self, filter: &Filter) -> impl Iterator<Item = TaskSummary> {
        let meant = self.rows.iter().filter(|(key, _)| filter.matches(key));
        meant.map(|(key, row)| TaskSummary {
            key: key.clone(),
            interactions: row.texts,
            tokens: Tokens(u32::try_from(row.tokens).unwrap_or(u32::MAX)),
            bytes: Bytes(row.bytes),
        })
    }

    /// The newest texts of a task that have at most `tokens` tokens together, oldest first.
    ///
    /// # Errors
    /// [`HistoryError`] if the file cannot be read.
    pub fn newest(&self, key: &TaskKey, tokens: Tokens) -> Result<Vec<Text>, HistoryError> {
        let Some(row) = self.rows.get(key) else { return Ok(Vec::new()) };
        let mut texts = self.texts_of(row.id, Newest(tokens))?;
        texts.reverse();
        Ok(texts.into_iter().map(|(_, text)| text).collect())
    }

    /// How long the file is.
    ///
    /// # Errors
    /// [`HistoryError`] if the system does not say.
    pub fn bytes(&self) -> Result<Bytes, HistoryError> {
        let metadata = fs::metadata(&self.path).map_err(|error| HistoryError::io(&self.path, error))?;
        Ok(Bytes(metadata.len()))
    }

    /// Texts of a task with their sequence numbers, newest first.
    pub(crate) fn texts_of(&self, id: u32, Newest(most): Newest) -> Result<Vec<(u64, Text)>, HistoryError> {
        let failed = |error: redb::Error| HistoryError::of(&self.path, error);
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = transaction.open_table(TEXTS).map_err(|error| failed(error.into()))?;
        let range = table.range((id, 0)..=(id, u64::MAX)).map_err(|error| failed(error.into()))?;
        let (mut texts, mut tokens) = (Vec::new(), Tokens::ZERO);
        for entry in range.rev() {
            let (key, value) = entry.map_err(|error| failed(error.into()))?;
            let text = tables::decode_text(key.value(), value.value());
            let text = text.map_err(|why| HistoryError::damaged(&self.path, why))?;
            if text.tokens() > most.saturating_sub(tokens) {
                break;
            }
            tokens += text.tokens();
            texts.push((key.value().1, text));
        }
        Ok(texts)
    }

    /// Adds the first interactions in one transaction. Returns how many: at least one.
    fn write(&self, rows: &mut Rows, interactions: &[Interaction]) -> Result<usize, redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut tables = Tables::open(&transaction)?;
        let (mut added, mut bytes) = (0, 0);
        for interaction in interactions {
            if bytes > self.limits.transaction().0 {
                break;
            }
            bytes += tables.append(rows, interaction, &self.limits)?;
            added += 1;
        }
        tables.evict(rows, &self.limits)?;
        tables.write_rows(rows)?;
        transaction.commit()?;
        Ok(added)
    }

    /// A database without our table is something else.
    fn check_format(&self) -> Result<(), HistoryError> {
        let failed = |error: redb::Error| HistoryError::of(&self.path, error);
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let mut names = transaction.list_tables().map_err(|error| failed(error.into()))?;
        if !names.any(|table| table.name() == META.name()) {
            return Err(HistoryError::Foreign(self.path.clone()));
        }
        let table = transaction.open_table(META).map_err(|error| failed(error.into()))?;
        let format = table.get(FORMAT_KEY).map_err(|error| failed(error.into()))?;
        match format.map(|format| format.value()) {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(HistoryError::Format { path: self.path.clone(), found }),
            None => Err(HistoryError::Foreign(self.path.clone())),
        }
    }

    fn read_rows(&self) -> Result<Rows, HistoryError> {
        let failed = |error: redb::Error| HistoryError::of(&self.path, error);
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = transaction.open_table(TASKS).map_err(|error| failed(error.into()))?;
        let mut rows = Rows::default();
        for entry in table.iter().map_err(|error| failed(error.into()))? {
            let (id, row) = entry.map_err(|error| failed(error.into()))?;
            let (key, row) = tables::decode(id.value(), row.value())
                .ok_or_else(|| HistoryError::damaged(&self.path, format!("row {} makes no sense", id.value())))?;
            rows.add(key, row);
        }
        Ok(rows)
    }
}

/// So many tokens of the newest texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest(pub(crate) Tokens);

/// Sees to it that there is a file, for its owner alone. Refuses one that does not begin as a database does.
fn prepare(path: &Path) -> Result<(), HistoryError> {
    let failed = |error| HistoryError::io(path, error);
    // Before it is opened: a pipe would wait for somebody at its other end.
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(HistoryError::Foreign(path.to_owned())),
        Ok(metadata) if metadata.len() > 0 => {}
        Ok(_) => {
            fs::remove_file(path).map_err(failed)?;
            create(path)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => create(path)?,
        Err(error) => return Err(failed(error)),
    }
    let file = File::open(path).map_err(failed)?;
    let mut begins = Vec::new();
    (&file).take(MAGIC.len() as u64).read_to_end(&mut begins).map_err(failed)?;
    if begins != MAGIC {
        return Err(HistoryError::Foreign(path.to_owned()));
    }
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(FILE_MODE)).map_err(failed)?;
    Ok(())
}

/// Begins a history under another name and renames it: under its own name it is whole from the beginning.
fn create(path: &Path) -> Result<(), HistoryError> {
    let failed = |error| HistoryError::io(path, error);
    create_folder(folder_of(path)).map_err(failed)?;
    let file = temporary(path)?;
    drop(HistoryFile::begin(file.path(), Limits::default())?);
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(failed(error.error)),
        // Another process was faster.
        Err(_) => Ok(()),
        // Else the machine could stop, and nothing would have the name.
        Ok(_) => sync_folder(folder_of(path)).map_err(failed),
    }
}

/// Makes a rename last.
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// A name beside `path` that nothing has: `history.redb.damaged`, or with a number.
fn unused_name(path: &Path) -> std::io::Result<PathBuf> {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 1 { DAMAGED.to_owned() } else { format!("{DAMAGED}.{number}") });
        PathBuf::from(name)
    };
    for number in 1..=ASIDE_MAX {
        if !named(number).try_exists()? {
            return Ok(named(number));
        }
    }
    Err(std::io::Error::other(format!("{ASIDE_MAX} damaged histories lie beside it; delete what is not needed")))
}

/// An empty file beside `path` that its owner alone may read; gone when it is dropped.
pub(crate) fn temporary(path: &Path) -> Result<NamedTempFile, HistoryError> {
    let file = tempfile::Builder::new().prefix(COPY[0]).suffix(COPY[1]).tempfile_in(folder_of(path));
    file.map_err(|error| HistoryError::io(path, error))
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn create_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Of every redb file.
const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// Answers are private.
#[cfg(unix)]
const FILE_MODE: u32 = 0o600;
/// Damaged files that are kept. Something is wrong with the disk long before.
const ASIDE_MAX: u32 = 100;
/// Pages that the database keeps in memory. Texts are written once and read once.
const CACHE_BYTES: usize = 4 << 20;

#[cfg(test)]
#[path = "power_tests.rs"]
mod power_tests;
