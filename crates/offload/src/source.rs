//! A block as a device's compiler takes it, and the key that what comes of it is kept under.

use crate::placed::{OffloadError, Target};
use duet_graphs::{Block, LayoutRules, RowRule, Rows, ShapeError, openvino};
use duet_openvino::{BlobCache, BlobKey, BlobSource, Digest, Graph, Ir};
use duet_types::{Bytes, Tokens};

/// A block for so many rows, as OpenVINO's devices take it.
///
/// # Errors
/// If they do not.
pub fn emit(block: &Block, rows: Rows) -> Result<openvino::Ir, ShapeError> {
    let rules = match rows {
        Rows::Dynamic => LayoutRules::FREE,
        Rows::Static(_) => LayoutRules { rows: RowRule::StaticMultipleOf(Tokens(1)), ..LayoutRules::FREE },
    };
    openvino::emit(block, rows, &rules)
}

/// A block in one shape, emitted.
pub(crate) struct Source {
    xml: String,
    bin: Vec<u8>,
    shape: String,
}

impl Source {
    /// Emits the block for so many rows.
    pub(crate) fn of(block: &Block, rows: Rows) -> Result<Self, OffloadError> {
        let openvino::Ir { xml, bin } = emit(block, rows)?;
        let shape = match rows {
            Rows::Dynamic => "?".to_owned(),
            Rows::Static(rows) => rows.0.to_string(),
        };
        Ok(Self { xml, bin, shape })
    }

    /// What the device compiles.
    pub(crate) fn ir(&self) -> Ir<'_> {
        Ir { xml: &self.xml, bin: &self.bin }
    }

    /// What the compiled graph depends on.
    pub(crate) fn key(&self, target: &Target<'_>) -> BlobKey {
        let block = Digest::of(&[Digest::of(self.xml.as_bytes()).0, Digest::of(&self.bin).0].concat());
        let model = Digest::of(target.model.as_bytes());
        BlobKey::new(&BlobSource { model, block, shape: self.shape.clone() }, target.device, target.options)
    }

    /// The graph, from the cache or compiled.
    pub(crate) fn obtain(self, target: &Target<'_>) -> Result<Box<dyn Graph>, OffloadError> {
        let Some(cache) = target.cache else {
            return Ok(target.device.compile_graph(&self.ir(), target.options)?);
        };
        let key = self.key(target);
        Ok(cache.obtain(&key, target.device, target.options, || (self.xml, self.bin))?.graph)
    }

    /// Sees to it that the compiled graph is in the cache. How large it is.
    pub(crate) fn keep(&self, target: &Target<'_>, cache: &BlobCache, key: &BlobKey) -> Result<Bytes, OffloadError> {
        if let Some(blob) = cache.get(key) {
            return Ok(Bytes(blob.len() as u64));
        }
        let blob = target.device.compile_graph(&self.ir(), target.options)?.export()?;
        cache.put(key, &blob).map_err(duet_openvino::Error::Keep)?;
        Ok(Bytes(blob.len() as u64))
    }
}
