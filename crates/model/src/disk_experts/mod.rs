//! Experts of a mixture that are not in memory: they lie in the file of packed weights, and are read when rows go to them.
//!
//! An expert's panels lie in one stretch of that file, so that one read brings it, into a slot of memory of its own, past the
//! page cache: what is read is neither held twice nor at the mercy of the system, which knows nothing of layers. Which
//! experts stay is `duet-moe`'s to say (`expert_cache.rs` there). A few threads read (`readers`); a pass asks for all
//! experts of a layer's rows at once ([`Wanted`]) and computes those that are there while others come; or it leaves, holding
//! them, and somebody is told when they are there (`parked.rs`).
//!
//! Invariants:
//! - what is computed with was just checked against the file's checksums: a file that was damaged or changed is found out,
//!   removed, and is an error of whoever asked, never a wrong answer;
//! - memory is that of the slots, which is bounded when the store is made;
//! - nobody waits for room who holds any, and those who left hold half of the slots at most: so somebody always goes on.

mod file;
mod memory;
mod parked;
mod place;
mod readers;
mod state;
mod wanted;

pub use parked::Tell;
pub(crate) use place::{ExpertPlace, MatrixPlace, SectionPlace};
pub(crate) use wanted::{IfMissing, Wanted, Wave};

use duet_moe::{CacheStats, Calibration};
use duet_types::{Bytes, Class};
use file::ExpertFile;
use memory::Slots;
use readers::Readers;
use state::State;
use std::io;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why experts cannot be kept on disk.
#[derive(Debug, thiserror::Error)]
pub enum ExpertMemoryError {
    /// There is not enough memory for what one token needs.
    #[error(
        "{given} of memory for experts are too little: a token goes to {chosen} experts of {each} in each layer, which \
         takes {least} at least, and all experts take {all}"
    )]
    TooSmall {
        /// What there is.
        given: Bytes,
        /// How many experts a token goes to.
        chosen: usize,
        /// What the largest takes.
        each: Bytes,
        /// The least that will do.
        least: Bytes,
        /// What takes all of them.
        all: Bytes,
    },
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// No threads to read with.
    #[error("no thread could be started to read experts: {0}")]
    Threads(io::Error),
}

/// An expert that a pass needs and that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: expert {expert} of layer {layer} cannot be read: {problem}")]
pub struct ExpertUnread {
    /// The file of packed weights.
    pub file: String,
    /// The layer, from 0.
    pub layer: usize,
    /// The expert, from 0.
    pub expert: u32,
    /// What is wrong, and what to do.
    pub problem: String,
}

/// Experts that were not in memory when a pass asked for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertReads {
    /// How many.
    pub experts: u64,
    /// What they take.
    pub bytes: Bytes,
}

impl AddAssign for ExpertReads {
    fn add_assign(&mut self, other: Self) {
        self.experts += other.experts;
        self.bytes.0 += other.bytes.0;
    }
}

/// What was done to have experts in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertMemoryStats {
    /// Of experts that were asked for.
    pub cache: CacheStats,
    /// Experts of the next layer that were foreseen, and how many of these its rows went to.
    pub predicted: [u64; 2],
    /// Bytes that were read.
    pub read: Bytes,
    /// How long passes have waited.
    pub waited: Duration,
    /// How often one gave its lanes back meanwhile.
    pub given_back: u64,
    /// How long reads took, those side by side added up.
    pub reading: Duration,
}

/// Experts on disk, and those of them that are in memory.
#[derive(Debug)]
pub(crate) struct ExpertStore {
    shared: Arc<Shared>,
    _readers: Readers,
}

/// What readers and passes share.
#[derive(Debug)]
struct Shared {
    file: ExpertFile,
    /// Of each layer; none of one without experts.
    places: Vec<Vec<ExpertPlace>>,
    state: Mutex<State>,
    /// There is something to read.
    work: Condvar,
    /// An expert has come or is lost, or one was released.
    changed: Condvar,
}

impl ExpertStore {
    /// Experts at these places of the file at `path`, of which each token goes to `chosen`, in `memory` at most.
    pub(crate) fn open(
        path: &Path,
        places: Vec<Vec<ExpertPlace>>,
        memory: Bytes,
        chosen: usize,
    ) -> Result<Self, ExpertMemoryError> {
        let slots = Slots::new(&places, memory, chosen)?;
        let file = ExpertFile::open(path).map_err(|error| ExpertMemoryError::File { path: path.to_owned(), error })?;
        let state = Mutex::new(State::new(&places, slots));
        let shared = Arc::new(Shared { file, places, state, work: Condvar::new(), changed: Condvar::new() });
        let readers = Readers::start(&shared).map_err(ExpertMemoryError::Threads)?;
        Ok(Self { shared, _readers: readers })
    }

    /// Reads the busiest experts by a calibration of the layers that have experts, to keep them; nobody waits for them.
    pub(crate) fn calibrate(&self, calibration: &Calibration) {
        let layers: Vec<usize> =
            self.shared.places.iter().enumerate().filter(|(_, places)| !places.is_empty()).map(|(at, _)| at).collect();
        self.shared.lock().calibrate(calibration, &layers);
        self.shared.work.notify_all();
    }

    /// Asks for the experts that rows of a layer go to, for a class of requests: so many rows to each.
    pub(crate) fn want(&self, of: (usize, Class), rows: usize, experts: &[(u32, u32)]) -> Wanted {
        Wanted::new(&self.shared, of, rows, experts)
    }

    /// Somebody thinks that rows will go to these experts of a layer soon.
    pub(crate) fn foresee(&self, layer: usize, experts: &[u32]) {
        if self.shared.lock().foresee(layer, experts) {
            self.shared.work.notify_all();
        }
    }

    /// What was done so far.
    pub(crate) fn stats(&self) -> ExpertMemoryStats {
        self.shared.lock().stats()
    }

    /// Memory for experts.
    pub(crate) fn memory(&self) -> Bytes {
        self.shared.lock().memory()
    }

    /// How long a read of one expert takes on this disk: the fastest of a few.
    pub(crate) fn probe(&self) -> Option<(Bytes, Duration)> {
        self.shared.file.probe(&self.shared.places)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
