//! Where downloaded models live: one directory per origin, one lock per directory.
//!
//! A model in the cache was whole when it came there (see [`super::partial`]), so finding one needs no lock; only who
//! downloads or removes needs it.

use super::fetch::FetchError;
use super::source::{Origin, is_gguf};
use anyhow::Context;
use etcetera::BaseStrategy;
use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The directory of one origin.
#[derive(Debug)]
pub(crate) struct Slot {
    directory: PathBuf,
    file_name: Option<String>,
    /// Where an earlier duet kept the same origin, maybe together with others.
    former: Option<PathBuf>,
}

/// The right to download into a slot. Given back on drop, and by the system when the process dies.
#[derive(Debug)]
pub(crate) struct SlotLock<'slot> {
    slot: &'slot Slot,
    _file: File,
}

/// `DUET_CACHE`, or the user's cache directory.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    if let Some(chosen) = env::var_os("DUET_CACHE").filter(|value| !value.is_empty()) {
        return Ok(chosen.into());
    }
    let base = etcetera::choose_base_strategy().context("no home directory; set DUET_CACHE to a directory")?;
    Ok(base.cache_dir().join("duet"))
}

impl Slot {
    /// The slot of `origin` in the cache at `root`. Creates nothing.
    pub(crate) fn new(root: &Path, origin: &Origin) -> Self {
        let models = root.join("models");
        Self {
            directory: models.join(origin.cache_directory()),
            file_name: origin.file_name().map(Into::into),
            former: origin.former_cache_directory().map(|directory| models.join(directory)),
        }
    }

    /// The model, if it was downloaded before.
    pub(crate) fn cached(&self) -> Option<PathBuf> {
        self.model_in(&self.directory)
    }

    /// What an earlier duet may have downloaded for this slot or for another one.
    pub(crate) fn former(&self) -> Option<PathBuf> {
        self.model_in(self.former.as_deref()?)
    }

    fn model_in(&self, directory: &Path) -> Option<PathBuf> {
        if let Some(name) = &self.file_name {
            let path = directory.join(name);
            return path.is_file().then_some(path);
        }
        let entries = fs::read_dir(directory).ok()?;
        let mut models: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(is_gguf))
            .map(|entry| entry.path())
            .collect();
        (models.len() == 1).then(|| models.remove(0))
    }

    /// Waits until nobody else downloads into this slot; calls `waiting` if that is not at once.
    pub(crate) fn lock(&self, waiting: impl FnOnce()) -> Result<SlotLock<'_>, FetchError> {
        fs::create_dir_all(&self.directory).map_err(FetchError::disk(&self.directory))?;
        let path = self.directory.join(".lock");
        let file = File::create(&path).map_err(FetchError::disk(&path))?;
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        match locked {
            // Some network file systems have no locks. Two downloads then race, and the rename still is atomic.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(FetchError::disk(&path)(error)),
            _ => Ok(SlotLock { slot: self, _file: file }),
        }
    }
}

impl SlotLock<'_> {
    /// Which slot this is.
    pub(crate) fn slot(&self) -> &Slot {
        self.slot
    }

    /// Where a file of this name belongs.
    pub(crate) fn target(&self, name: &str) -> PathBuf {
        self.slot.directory.join(name)
    }

    /// An empty scratch directory, removed with the next download if this one dies.
    pub(crate) fn scratch(&self) -> Result<PathBuf, FetchError> {
        let path = self.slot.directory.join(".download");
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(FetchError::disk(&path)(error)),
            _ => fs::create_dir(&path).map_err(FetchError::disk(&path))?,
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(root: &Path, origin: &str) -> Slot {
        Slot::new(root, &Origin::parse(origin).unwrap().unwrap())
    }

    #[test]
    fn a_package_of_unknown_content_is_found_by_its_only_model() {
        let root = tempfile::tempdir().unwrap();
        let slot = slot(root.path(), "pypi:x");
        assert_eq!(slot.cached(), None);
        let lock = slot.lock(|| panic!("nobody else is here")).unwrap();
        fs::write(lock.target("m.gguf.abc.partial"), "half").unwrap();
        assert_eq!(slot.cached(), None);
        fs::write(lock.target("m.gguf"), "whole").unwrap();
        assert_eq!(slot.cached(), Some(root.path().join("models/pypi/x==/only/m.gguf")));
    }

    #[test]
    fn scratch_is_empty_even_after_a_crash() {
        let root = tempfile::tempdir().unwrap();
        let slot = slot(root.path(), "pypi:x");
        let lock = slot.lock(|| ()).unwrap();
        fs::write(lock.scratch().unwrap().join("left.whl"), "over").unwrap();
        assert_eq!(fs::read_dir(lock.scratch().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn the_second_to_lock_waits_for_the_first() {
        let root = tempfile::tempdir().unwrap();
        let slot = slot(root.path(), "pypi:x");
        let first = slot.lock(|| ()).unwrap();
        let (waiting, waits) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _lock = slot.lock(|| waiting.send(()).unwrap()).unwrap();
                slot.cached()
            });
            waits.recv().unwrap();
            fs::write(first.target("m.gguf"), "whole").unwrap();
            drop(first);
            assert!(second.join().unwrap().is_some());
        });
    }
}
