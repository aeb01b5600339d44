//! What a model's matrix products compute and read, as the scheduler's annotations want to know it.

use duet_kernels::packed::PackedMatrix;
use duet_types::Bytes;

/// What the token-wise nodes of a model compute and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Layers.
    pub layers: usize,
    /// The QKV node of a layer.
    pub qkv: Linear,
    /// The feed-forward node of a layer, output projection included.
    pub ffn: Linear,
    /// The head.
    pub head: Linear,
    /// What the feed-forward node is made of, if there are experts in it.
    pub experts: Option<ExpertWork>,
}

/// Multiply-accumulates of the parts of a feed-forward node with experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertWork {
    /// Of a row: the output projection and the router.
    pub route: u64,
    /// Weights of these.
    pub route_bytes: Bytes,
    /// Of a row in one expert.
    pub expert: u64,
    /// Of a row in the expert that all rows go to; 0 if there is none.
    pub shared: u64,
}

/// Some matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Multiply-accumulates of a row.
    pub macs: u64,
    /// Packed weights that are read for any number of rows.
    pub bytes: Bytes,
    /// Packed weights of which each row reads some.
    pub routed: Option<RoutedBytes>,
}

/// Weights of experts, of which a row reads those it goes to. Layers route as they like; that all experts are as likely
/// is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedBytes {
    /// Of all experts.
    pub bytes: Bytes,
    /// How many there are.
    pub experts: usize,
    /// How many a row goes to.
    pub chosen: usize,
}

impl Linear {
    pub(crate) const NOTHING: Self = Self { macs: 0, bytes: Bytes(0), routed: None };

    pub(crate) fn of(matrix: &PackedMatrix) -> Self {
        Self { macs: matrix.macs() as u64, bytes: Bytes(matrix.bytes() as u64), routed: None }
    }

    /// The mean of some; nothing of none.
    #[must_use]
    pub fn mean(all: impl ExactSizeIterator<Item = Self>) -> Self {
        let count = all.len().max(1) as u64;
        let (mut macs, mut bytes, mut routed_bytes, mut routed) = (0, 0, 0, None);
        for one in all {
            (macs, bytes) = (macs + one.macs, bytes + one.bytes.0);
            routed_bytes += one.routed.map_or(0, |routed| routed.bytes.0);
            routed = routed.or(one.routed);
        }
        let routed = routed.map(|routed| RoutedBytes { bytes: Bytes(routed_bytes / count), ..routed });
        Self { macs: macs / count, bytes: Bytes(bytes / count), routed }
    }

    /// Bytes of weights in all.
    #[must_use]
    pub fn all_bytes(&self) -> Bytes {
        Bytes(self.bytes.0 + self.routed.map_or(0, |routed| routed.bytes.0))
    }

    /// Bytes of weights that one row reads.
    #[must_use]
    pub fn row_bytes(&self) -> Bytes {
        let routed =
            self.routed.map_or(0, |routed| routed.bytes.0 * routed.chosen as u64 / routed.experts.max(1) as u64);
        Bytes(self.bytes.0 + routed)
    }
}
