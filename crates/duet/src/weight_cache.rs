//! Packed weights on disk: the first start of a model writes them, and it and later ones map them.
//!
//! They are kept for models of which packing takes a while, and for those whose experts stay in them. Such a model is packed
//! into the file before it is loaded, a few layers at a time, so that memory never holds it twice, nor at all where the
//! system wants it for something else. If the file cannot be written, weights are packed in memory, and that costs the next
//! start its speed, and a line; where experts were to stay in it, it is an error.

use crate::disk::free_disk;
use crate::models;
use crate::progress::{Progress, eprintln_quiet};
use crate::weights::Weights;
use duet_files::bounded;
use duet_model::gguf::GgufFile;
use duet_model::{LoadError, LoadOptions, LoadProgress, Model, PackError, Packing, Unusable};
use duet_types::Bytes;
use std::io;
use std::path::{Path, PathBuf};
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

    /// Notes that a model's weights are used.
    pub(crate) fn used(model: &Model) {
        if let Packing::Kept(path) = model.packing() {
            bounded::touch(path);
        }
    }

    /// Whether a model's weights are to be packed into a file before it is loaded.
    pub(crate) fn packs_first(weights: Weights) -> bool {
        weights.all >= LEAST
    }

    /// Packs a model into the file at `path`, which is not usable.
    pub(crate) fn pack(
        &self,
        model: &Path,
        (path, why): (&Path, Unusable),
        options: &LoadOptions,
    ) -> Result<(), PackError> {
        if why != Unusable::Absent {
            eprintln_quiet(&format!("{}: {why}; weights are packed again", path.display()));
        }
        let what = model.file_name().unwrap_or(model.as_os_str()).to_string_lossy();
        let mut bar = None;
        let mut progress = |now: LoadProgress| {
            bar.get_or_insert_with(|| Progress::bytes("packing", &what, now.total)).set(now.done);
        };
        let source = GgufFile::open(model).map_err(LoadError::from)?;
        let file = self.room(Weights::of(source.tensors()).all)?;
        Model::pack_into(&source, file.as_file(), options, &mut progress)?;
        file.persist(path).map_err(io::Error::from)?;
        bar.into_iter().for_each(|bar| bar.finish("packed"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::{LoadError, PackedFileUse};

    #[test]
    fn the_first_start_packs_into_the_file_and_later_ones_map_it() {
        let Some(path) = duet_testing::path(duet_testing::Need::Model) else { return };
        let folder = tempfile::tempdir().unwrap();
        let of = |limit: u64| WeightCache { folder: folder.path().join("weights"), limit: Bytes(limit) };
        let options = |packed_file| LoadOptions {
            packed: Some(folder.path().join("weights")),
            packed_file,
            ..LoadOptions::default()
        };
        let load = |packed_file| Model::load(&path, &options(packed_file), &mut |_| {});
        assert!(WeightCache::packs_first(Weights::of(GgufFile::open(&path).unwrap().tensors())));
        let Err(LoadError::NotPacked { path: place, why }) = load(PackedFileUse::OrRefuse) else { panic!() };
        assert_eq!(why, Unusable::Absent);
        let pack = |cache: &WeightCache| cache.pack(&path, (&place, why), &options(PackedFileUse::OrRefuse));
        let refused = pack(&of(1000)).unwrap_err();
        assert!(refused.to_string().contains("--weight-cache"), "{refused}");
        let (cache, mapped) = (of(1 << 30), Packing::Kept(place.clone()));
        pack(&cache).unwrap();
        assert_eq!(load(PackedFileUse::JustWritten).unwrap().packing(), &mapped);
        assert_eq!(load(PackedFileUse::OrRefuse).unwrap().packing(), &mapped);
        // Damage costs the speed of one start.
        let mut bytes = std::fs::read(&place).unwrap();
        bytes.truncate(bytes.len() / 2);
        std::fs::write(&place, bytes).unwrap();
        let damaged = load(PackedFileUse::OrRefuse).map(drop);
        assert!(matches!(damaged, Err(LoadError::NotPacked { why: Unusable::Damaged, .. })), "{damaged:?}");
        pack(&cache).unwrap();
        assert_eq!(load(PackedFileUse::OrRefuse).unwrap().packing(), &mapped);
    }
}
