//! The experts of a layer: in memory, or on disk.

use crate::disk_experts::ExpertPlace;
use duet_kernels::fused::{Feed, Feeds, PresentFeeds};

/// Where experts are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertsIn {
    /// In memory, as all other weights.
    Memory,
    /// In the file of packed weights.
    PackedFile,
}

/// The experts of a layer.
#[derive(Debug)]
pub(crate) enum ExpertWeights {
    Memory(Vec<Feed>),
    Disk {
        places: Vec<ExpertPlace>,
        /// What is in memory as far as the weights know: the store has the rest.
        none: PresentFeeds,
    },
}

impl ExpertWeights {
    /// On disk, at these places.
    pub(crate) fn on_disk(places: Vec<ExpertPlace>) -> Self {
        let none = PresentFeeds::none(places.len(), places.first().map_or(0, ExpertPlace::width));
        Self::Disk { places, none }
    }

    pub(crate) fn feeds(&self) -> Feeds<'_> {
        match self {
            Self::Memory(feeds) => Feeds::All(feeds),
            Self::Disk { none, .. } => Feeds::Present(none),
        }
    }

    /// Those that are in memory for good.
    pub(crate) fn in_memory(&self) -> &[Feed] {
        match self {
            Self::Memory(feeds) => feeds,
            Self::Disk { .. } => &[],
        }
    }

    /// Where they lie, if they are on disk.
    pub(crate) fn places(&self) -> &[ExpertPlace] {
        match self {
            Self::Memory(_) => &[],
            Self::Disk { places, .. } => places,
        }
    }

    /// Whether any on disk has floats.
    pub(crate) fn has_floats(&self) -> bool {
        self.places().iter().any(ExpertPlace::has_floats)
    }

    /// Multiply-accumulates of a row in one of them.
    pub(crate) fn macs(&self) -> usize {
        match self {
            Self::Memory(feeds) => feeds.first().map_or(0, Feed::macs),
            Self::Disk { places, .. } => places.first().map_or(0, ExpertPlace::macs),
        }
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Memory(feeds) => feeds.iter().map(Feed::bytes).sum(),
            Self::Disk { places, .. } => places.iter().map(ExpertPlace::bytes).sum(),
        }
    }
}
