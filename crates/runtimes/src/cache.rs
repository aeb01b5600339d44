//! Compiled graphs on disk: what a device has compiled once is taken up again when the program starts the next time.
//!
//! Invariants:
//! - what is given out is, to the byte, what was put in under the same key;
//! - a file is there whole or not at all: it is written under another name first;
//! - after each `put` the files take no more than the limit; those that were not used for longest go first;
//! - nothing about the cache is an error for who wants a graph: what is not there, or damaged, is compiled.
//!
//! Several processes may share a folder.

use crate::blob_file;
use crate::blob_key::{BlobKey, EXTENSION};
use crate::error::Error;
use crate::graph_device::{Emitted, Graph, GraphDevice};
use duet_files::bounded;
use duet_types::Bytes;
use std::io;
use std::path::PathBuf;

/// A folder of compiled graphs.
#[derive(Clone, Debug)]
pub struct BlobCache {
    folder: PathBuf,
    limit: Bytes,
}

/// A graph that is ready, and where it came from.
#[derive(Debug)]
pub struct Obtained {
    /// The graph.
    pub graph: Box<dyn Graph>,
    /// Where it came from.
    pub origin: Origin,
}

/// Where a graph came from.
#[derive(Debug)]
pub enum Origin {
    /// From the cache.
    Imported,
    /// It was compiled, and is in the cache now.
    Compiled,
    /// It was compiled, and will be again the next time: why it could not be kept.
    NotKept(Error),
}

impl BlobCache {
    /// A cache in `folder`, which is made when it is needed, of at most `limit` bytes.
    #[must_use]
    pub fn new(folder: PathBuf, limit: Bytes) -> Self {
        Self { folder, limit }
    }

    /// What all that is kept may take.
    #[must_use]
    pub fn limit(&self) -> Bytes {
        self.limit
    }

    /// Takes the graph of `key` up from the cache, or else compiles what `emit` makes, and keeps the result. What was
    /// compiled is taken up at once, as it will be the next time: beside its
    /// own copy of the constants OpenVINO's CPU keeps those that a graph was compiled from, but not those of a graph
    /// taken up.
    ///
    /// # Errors
    /// If the device can do neither.
    pub fn obtain(
        &self,
        key: &BlobKey,
        device: &dyn GraphDevice,
        emit: impl FnOnce() -> Emitted,
    ) -> Result<Obtained, Error> {
        // A graph that is whole may be refused all the same, by a driver that was changed without a new version.
        if let Some(graph) = self.get(key).and_then(|blob| device.import_graph(&blob).ok()) {
            return Ok(Obtained { graph, origin: Origin::Imported });
        }
        let compiled = device.compile_graph(&emit())?;
        let blob = match compiled.export() {
            Ok(blob) => blob,
            Err(error) => return Ok(Obtained { graph: compiled, origin: Origin::NotKept(error) }),
        };
        let kept = self.put(key, &blob).map_err(Error::Keep);
        let graph = device.import_graph(&blob).unwrap_or(compiled);
        Ok(Obtained { graph, origin: kept.map_or_else(Origin::NotKept, |()| Origin::Compiled) })
    }

    /// The bytes of `key`; none if they are not there, or not whole.
    #[must_use]
    pub fn get(&self, key: &BlobKey) -> Option<Vec<u8>> {
        blob_file::read(&self.folder.join(key.file_name()), key)
    }

    /// Keeps `blob` under `key`, and removes others until all that is kept is within the limit.
    ///
    /// # Errors
    /// If the folder cannot be written, or `blob` alone is over the limit.
    pub fn put(&self, key: &BlobKey, blob: &[u8]) -> io::Result<()> {
        if blob.len() as u64 > self.limit.0 {
            let size = Bytes(blob.len() as u64);
            return Err(io::Error::other(format!("the graph has {size}, the whole cache {}", self.limit)));
        }
        std::fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::Builder::new().suffix(&format!(".{}", bounded::PARTIAL)).tempfile_in(&self.folder)?;
        blob_file::write(&mut file, key, blob)?;
        file.persist(self.folder.join(key.file_name()))?;
        bounded::make_room(&self.folder, EXTENSION, self.limit.0, 0).map(drop)
    }
}
