//! Why a history cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a history cannot be used. Each message stands alone and says what to do where that is not obvious.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Another process has the file open.
    #[error("{}: in use by another duet; stop it first, or choose another file", .0.display())]
    InUse(PathBuf),
    /// Not a history.
    #[error("{}: not a history of duet; choose another file", .0.display())]
    Foreign(PathBuf),
    /// A later version's history.
    #[error("{}: written by another version of duet (format {found}, this one reads {FORMAT}); choose another file", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A file that was cut or changed by something else.
    #[error("{}: damaged ({why}); delete it to begin a new history", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// What was exported could not be written.
    #[error("cannot write what is exported: {0}")]
    Export(io::Error),
}

impl HistoryError {
    /// Whether the file that was given is wrong, rather than the machine or the moment.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Foreign(_) | Self::Format { .. } | Self::Damaged { .. })
    }

    /// What the database says of the file at `path`.
    pub(crate) fn of(path: &Path, error: impl Into<redb::Error>) -> Self {
        let path = path.to_owned();
        match error.into() {
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Self::InUse(path),
            // The second one: it ends where a page should be.
            redb::Error::Io(error)
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Self::damaged(&path, error)
            }
            redb::Error::Io(error) => Self::Io { path, error },
            redb::Error::PreviousIo => Self::Io { path, error: io::Error::other("an earlier write failed") },
            error => Self::damaged(&path, error),
        }
    }

    pub(crate) fn damaged(path: &Path, why: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }
}

/// Of the rows in a file. Another number when their meaning changes.
pub(crate) const FORMAT: u64 = 1;
