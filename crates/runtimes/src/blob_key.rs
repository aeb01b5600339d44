//! What a compiled graph depends on. If any of it differs, the graph is another one.

use crate::graph_device::GraphDevice;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Where a graph comes from, as its maker says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobSource {
    /// The model's file.
    pub model: Digest,
    /// The block of it, and how it was emitted.
    pub block: Digest,
    /// The shape that it was emitted for: `256`, or `?` for any rows.
    pub shape: String,
}

/// SHA-256 of something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

/// All that a compiled graph depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobKey {
    text: String,
}

impl Digest {
    /// Of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl BlobKey {
    /// The key of `source`, compiled for `device` as it is set by this version of duet.
    #[must_use]
    pub fn new(source: &BlobSource, device: &dyn GraphDevice) -> Self {
        let info = device.info();
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        let parts = [
            ("duet", env!("CARGO_PKG_VERSION").to_owned()),
            ("model", source.model.to_string()),
            ("block", source.block.to_string()),
            ("shape", source.shape.clone()),
            ("device", info.name.clone()),
            ("name", optional(&info.full_name)),
            ("architecture", optional(&info.architecture)),
            ("driver", optional(&info.driver)),
            ("toolchain", device.toolchain().to_owned()),
            ("settings", device.settings()),
        ];
        // Quoted, so that no value can look like two.
        Self { text: parts.iter().map(|(name, value)| format!("{name} {value:?}\n")).collect() }
    }

    /// The key as it stands in a file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The name of its file.
    pub(crate) fn file_name(&self) -> String {
        format!("{}.{EXTENSION}", Digest::of(self.text.as_bytes()))
    }
}

/// What the names of finished files end in.
pub const EXTENSION: &str = "blob";

/// Lower-case hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
