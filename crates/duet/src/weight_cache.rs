//! Packed weights on disk: the first start of a model writes them beside its work, and later ones map them.
//!
//! They are kept for models of which packing takes a while, and for those whose experts stay in them: such a model is packed
//! before it is loaded, a few matrices at a time, so that memory never holds it. What cannot be written costs the next start
//! its speed, and a line; where experts were to stay in it, it is an error.

use crate::disk::free_disk;
use crate::progress::{Progress, eprintln_quiet};
use crate::{inspect, models};
use duet_files::bounded;
use duet_model::{LoadOptions, LoadProgress, Model, PackError, Packing, Unusable};
use duet_types::Bytes;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tempfile::NamedTempFile;

/// What the files' names end in.
pub(crate) const EXTENSION: &str = "packed";

/// Disk for all of them, unless somebody says otherwise.
const DEFAULT_LIMIT: Bytes = Bytes(32 << 30);

/// Weights of less are packed as fast as they are mapped.
const LEAST: Bytes = Bytes(32 << 20);

/// Where packed weights are kept.
#[derive(Clone, Debug)]
pub(crate) struct WeightCache {
    folder: PathBuf,
    limit: Bytes,
}

impl WeightCache {
    /// The user's, of at most `limit` bytes; none if that is nothing, or there is no place for it.
    pub(crate) fn of(limit: Option<Bytes>) -> Option<Self> {
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        let folder = folder().ok().filter(|_| limit > Bytes(0))?;
        Some(Self { folder, limit })
    }

    /// Where a model's are to be looked for.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether there is a file that may have the packed weights of the model in `path`.
    pub(crate) fn may_have(&self, path: &Path) -> bool {
        let stem = duet_model::packed_stem(path);
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        files.filter_map(|file| file.file_name().into_string().ok()).any(|name| name.starts_with(&stem))
    }

    /// Keeps the weights of a model that had to be packed, on a thread of its own ([`finish`]).
    pub(crate) fn keep(&self, model: &Arc<Model>) {
        match model.packing() {
            Packing::NotKept => {}
            Packing::Mapped(path) => bounded::touch(path),
            Packing::Packed(path, why) => {
                if model.weight_bytes() < LEAST {
                    return;
                }
                if *why != Unusable::Absent {
                    eprintln_quiet(&format!("{}: {why}; weights were packed again", path.display()));
                }
                let (cache, model, path) = (self.clone(), Arc::clone(model), path.clone());
                let write = move || {
                    if let Err(error) = cache.write(&model, &path) {
                        eprintln_quiet(&format!("packed weights are not kept: {}: {error}", path.display()));
                    }
                };
                // Without a thread the next start packs again.
                if let Ok(writer) = std::thread::Builder::new().name("duet-weights".to_owned()).spawn(write) {
                    WRITERS.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
                }
            }
        }
    }

    /// Packs a model whose experts are to stay on disk: `path` is to have them, and is not usable.
    pub(crate) fn pack(
        &self,
        model: &Path,
        (path, why): (&Path, Unusable),
        options: &LoadOptions,
    ) -> anyhow::Result<()> {
        if why != Unusable::Absent {
            eprintln_quiet(&format!("{}: {why}; weights are packed again", path.display()));
        }
        let what = model.file_name().unwrap_or(model.as_os_str()).to_string_lossy();
        let mut bar = None;
        let mut progress = |now: LoadProgress| {
            bar.get_or_insert_with(|| Progress::bytes("packing", &what, now.total)).set(now.done);
        };
        let needed = inspect::packed_weights(model)?.all;
        let packed = self.room(needed).map_err(PackError::from).and_then(|file| {
            let mut out = BufWriter::new(file);
            Model::pack_into(model, &mut out, options, &mut progress)?;
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.persist(path).map_err(io::Error::from)?;
            Ok(())
        });
        match packed {
            Ok(()) => bar.into_iter().for_each(|bar| bar.finish("packed")),
            Err(PackError::Load(error)) => return Err(error.into()),
            Err(PackError::Write(error)) => {
                let text = format!("--expert-memory: packed weights cannot be written: {}: {error}", path.display());
                return Err(anyhow::anyhow!(text));
            }
        }
        Ok(())
    }

    fn write(&self, model: &Model, path: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(self.room(model.weight_bytes())?);
        model.write_packed(&mut out)?;
        out.flush()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        // What a crash leaves of it has not its checksums.
        file.persist(path)?;
        Ok(())
    }

    /// A file for weights of so many bytes, if the disk and the limit have room for them.
    fn room(&self, needed: Bytes) -> io::Result<NamedTempFile> {
        std::fs::create_dir_all(&self.folder)?;
        // First, so that no other model's are removed for nothing.
        if let Some(free) = free_disk(&self.folder).filter(|free| free.0 < 2 * needed.0) {
            return Err(io::Error::other(format!("they take {needed}, and only {free} of the disk are free")));
        }
        if !bounded::make_room(&self.folder, EXTENSION, self.limit.0, needed.0)? {
            return Err(io::Error::other(format!("they take {needed}, and --weight-cache is {}", self.limit)));
        }
        let partial = format!(".{}", bounded::PARTIAL);
        tempfile::Builder::new().suffix(&partial).tempfile_in(&self.folder)
    }
}

/// Where they are kept.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    models::cache_folder("weights")
}

static WRITERS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Waits for what is being written: the program ends.
pub(crate) fn finish() {
    for writer in std::mem::take(&mut *WRITERS.lock().unwrap_or_else(PoisonError::into_inner)) {
        // It has said what went wrong.
        let _ = writer.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(path: &Path, cache: &WeightCache) -> Arc<Model> {
        let options = LoadOptions { packed: Some(cache.folder().to_owned()), ..LoadOptions::default() };
        Arc::new(Model::load(path, &options, &mut |_| {}).unwrap())
    }

    #[test]
    fn the_second_start_maps_what_the_first_has_written() {
        let Some(path) = duet_testing::path(duet_testing::Need::Model) else { return };
        let folder = tempfile::tempdir().unwrap();
        let of = |limit: u64| WeightCache { folder: folder.path().join("weights"), limit: Bytes(limit) };
        let small = of(1000);
        let first = load(&path, &small);
        let Packing::Packed(place, Unusable::Absent) = first.packing().clone() else { panic!("{:?}", first.packing()) };
        let refused = small.write(&first, &place).unwrap_err();
        assert!(refused.to_string().contains("--weight-cache"), "{refused}");
        let cache = of(1 << 30);
        cache.keep(&first);
        finish();
        assert_eq!(load(&path, &cache).packing(), &Packing::Mapped(place.clone()));
        // Damage costs the speed of one start.
        let mut bytes = std::fs::read(&place).unwrap();
        bytes.truncate(bytes.len() / 2);
        std::fs::write(&place, bytes).unwrap();
        let third = load(&path, &cache);
        assert_eq!(third.packing(), &Packing::Packed(place.clone(), Unusable::Damaged));
        cache.keep(&third);
        finish();
        assert_eq!(load(&path, &cache).packing(), &Packing::Mapped(place));
    }
}
