//! A block as a device's compiler takes it, and the key that what comes of it is kept under.

use crate::placed::{OffloadError, Target};
use duet_graphs::Rows;
use duet_runtimes::{BlobCache, BlobKey, BlobSource, Digest, Emitted, Graph, GraphSource};
use duet_types::Bytes;

/// A block in one shape, emitted.
pub(crate) struct Source {
    emitted: Emitted,
    shape: String,
}

impl Source {
    /// Emits the block for the rows that `source` names.
    pub(crate) fn of(target: &Target<'_>, source: &GraphSource<'_>) -> Result<Self, OffloadError> {
        let shape = match source.rows {
            Rows::Dynamic => "?".to_owned(),
            Rows::Static(rows) => rows.0.to_string(),
        };
        Ok(Self { emitted: target.device.emit(source)?, shape })
    }

    /// How large it is: about what its compiled graph takes.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes((self.emitted.graph.len() + self.emitted.constants.len()) as u64)
    }

    /// What the compiled graph depends on.
    pub(crate) fn key(&self, target: &Target<'_>) -> BlobKey {
        let (model, block) = (Digest::of(target.model.as_bytes()), self.emitted.digest());
        BlobKey::new(&BlobSource { model, block, shape: self.shape.clone() }, target.device)
    }

    /// The graph, from the cache or compiled.
    pub(crate) fn obtain(self, target: &Target<'_>) -> Result<Box<dyn Graph>, OffloadError> {
        let Some(cache) = target.cache else { return Ok(target.device.compile_graph(&self.emitted)?) };
        let key = self.key(target);
        Ok(cache.obtain(&key, target.device, || self.emitted)?.graph)
    }

    /// Sees to it that the compiled graph is in the cache, if that has room: what it does not hold is compiled again when it
    /// is loaded. How large it is.
    pub(crate) fn keep(&self, target: &Target<'_>, cache: &BlobCache, key: &BlobKey) -> Result<Bytes, OffloadError> {
        if let Some(blob) = cache.get(key) {
            return Ok(Bytes(blob.len() as u64));
        }
        let blob = target.device.compile_graph(&self.emitted)?.export()?;
        let _ = cache.put(key, &blob);
        Ok(Bytes(blob.len() as u64))
    }
}
