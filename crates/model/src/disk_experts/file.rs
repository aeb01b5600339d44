//! Reads experts from the file of packed weights, past the page cache where the system allows that, and checks them.

use super::ExpertUnread;
use super::memory::Slot;
use super::place::{BLOCK, ExpertPlace, MatrixPlace, SectionPlace};
use crate::read_at::read_at;
use crc32fast::Hasher;
use duet_kernels::fused::Feed;
use duet_kernels::memory::Aligned;
use duet_kernels::packed::{Lender, PackedMatrix};
use duet_moe::Place;
use duet_types::Bytes;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The open file.
#[derive(Debug)]
pub(super) struct ExpertFile {
    path: PathBuf,
    file: File,
    past_cache: PastCache,
    /// What came of removing it, once that was tried.
    removal: OnceLock<io::Result<()>>,
}

/// How the page cache is kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PastCache {
    /// Reads do not go through it.
    Direct,
    /// What a read left in it is dropped.
    Dropped,
}

/// An expert that was not read: its slot, and why.
pub(super) struct NotRead {
    pub(super) slot: Slot,
    pub(super) problem: String,
}

/// What is wrong with what was read.
enum Wrong {
    /// The system failed to read it.
    Failed(io::Error),
    /// It is not what was written.
    Damaged,
}

impl ExpertFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let direct = open_direct(path).map(|file| (file, PastCache::Direct));
        let (file, past_cache) = direct.or_else(|_| Ok::<_, io::Error>((File::open(path)?, PastCache::Dropped)))?;
        Ok(Self { path: path.to_owned(), file, past_cache, removal: OnceLock::new() })
    }

    /// Reads an expert into a slot, twice if need be, and makes it ready to compute with.
    pub(super) fn read(&self, place: &ExpertPlace, mut slot: Slot) -> Result<(Arc<Feed>, Arc<Slot>), NotRead> {
        let mut wrong = Wrong::Damaged;
        for _ in 0..ATTEMPTS {
            match self.read_checked(place, &mut slot) {
                Ok(()) => {
                    let slot = Arc::new(slot);
                    let Some(feed) = feed(place, &slot) else {
                        // Sections that no matrix can have were refused when the file was opened.
                        let slot = Arc::into_inner(slot).unwrap_or_else(|| Slot::lost(place));
                        return Err(NotRead { slot, problem: DAMAGED.to_owned() });
                    };
                    return Ok((Arc::new(feed), slot));
                }
                Err(found) => wrong = found,
            }
        }
        Err(NotRead { slot, problem: self.give_up(&wrong) })
    }

    /// Says what is wrong. A file that is damaged is removed, so that the next start packs the weights anew; one that a
    /// disk does not give may be whole.
    fn give_up(&self, wrong: &Wrong) -> String {
        let what = match wrong {
            Wrong::Failed(error) => return format!("the disk says: {error}"),
            Wrong::Damaged => DAMAGED,
        };
        // Once: a reader that tried again later could take away what was packed anew meanwhile.
        match self.removal.get_or_init(|| self.remove()) {
            Ok(()) => format!("{what}; the next start packs the weights anew"),
            Err(error) => format!("{what}; remove the file, so that the next start packs the weights anew ({error})"),
        }
    }

    /// Removes the file, unless another one has its name by now.
    fn remove(&self) -> io::Result<()> {
        let is_own = match (self.file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(own), Ok(named)) => is_same(&own, &named),
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => false,
            _ => true,
        };
        if is_own { std::fs::remove_file(&self.path) } else { Ok(()) }
    }

    fn read_checked(&self, place: &ExpertPlace, slot: &mut Slot) -> Result<(), Wrong> {
        let (blocks, span) = (place.blocks(), place.span());
        let into = slot.blocks(blocks.len()).ok_or(Wrong::Damaged)?;
        self.read_blocks(blocks.start, into, span.end - blocks.start)?;
        let is_whole = |section: &SectionPlace| {
            let part = |range: &std::ops::Range<usize>| {
                into.get(range.start - blocks.start..range.end - blocks.start).unwrap_or_default()
            };
            let mut hasher = Hasher::new();
            hasher.update(part(&section.quants));
            hasher.update(part(&section.scales));
            hasher.finalize() == section.crc
        };
        let mut sections = place.gate_up().sections.iter().chain(&place.down().sections);
        if sections.all(is_whole) { Ok(()) } else { Err(Wrong::Damaged) }
    }

    /// Reads whole blocks from `start`, of which the first `needed` bytes must be there: a file need not end with a block.
    fn read_blocks(&self, start: usize, into: &mut [u8], needed: usize) -> Result<(), Wrong> {
        let mut done = 0;
        while done < needed {
            match read_at(&self.file, &mut into[done..], (start + done) as u64) {
                Ok(0) => return Err(Wrong::Damaged),
                // Past the cache, a read begins at a block.
                Ok(count) if done + count < needed => {
                    let whole = (done + count) / BLOCK * BLOCK;
                    if whole == done {
                        return Err(Wrong::Damaged);
                    }
                    done = whole;
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Wrong::Failed(error)),
            }
        }
        if self.past_cache == PastCache::Dropped {
            drop_cached(&self.file, start, into.len());
        }
        Ok(())
    }

    pub(super) fn unread(&self, place: Place, problem: String) -> ExpertUnread {
        let file = self.path.display().to_string();
        ExpertUnread { file, layer: place.layer, expert: place.expert.0, problem }
    }

    /// What a read of an expert takes: the fastest of a few.
    pub(super) fn probe(&self, places: &[Vec<ExpertPlace>]) -> Option<(Bytes, Duration)> {
        let all: Vec<&ExpertPlace> = places.iter().flatten().collect();
        let longest = all.iter().map(|place| place.blocks().len()).max()?;
        let mut slot = Slot::of(longest);
        let some = all.iter().step_by((all.len() / PROBED).max(1)).take(PROBED);
        let times = some.filter_map(|place| {
            let blocks = place.blocks();
            let begun = Instant::now();
            let read = self.read_blocks(blocks.start, slot.blocks(blocks.len())?, place.span().end - blocks.start);
            read.is_ok().then(|| (Bytes(blocks.len() as u64), begun.elapsed()))
        });
        times.min_by(|(a, b), (c, d)| (b.as_secs_f64() / a.0 as f64).total_cmp(&(d.as_secs_f64() / c.0 as f64)))
    }
}

impl Slot {
    /// One of its own, for so many bytes in blocks.
    fn of(bytes: usize) -> Self {
        Self::from(Aligned::zeroed(bytes.next_multiple_of(BLOCK) + BLOCK))
    }

    fn lost(place: &ExpertPlace) -> Self {
        Self::of(place.blocks().len())
    }
}

/// How often a read is tried.
const ATTEMPTS: usize = 2;

/// Experts that a probe reads.
const PROBED: usize = 8;

const DAMAGED: &str = "its bytes are not those that were written";

/// The expert in a slot that it was read into.
fn feed(place: &ExpertPlace, slot: &Arc<Slot>) -> Option<Feed> {
    let offset = slot.base();
    let lender: Lender = Arc::clone(slot) as Lender;
    let matrix = |matrix: &MatrixPlace| {
        let within = |at: usize| offset + at - place.blocks().start;
        let section = |section: &SectionPlace| {
            (section.outputs, section.form, [within(section.quants.start), within(section.scales.start)])
        };
        PackedMatrix::lent(matrix.inputs, &matrix.sections.iter().map(section).collect::<Vec<_>>(), &lender)
    };
    Some(Feed { gate_up: matrix(place.gate_up())?, down: matrix(place.down())? })
}

#[cfg(unix)]
fn open_direct(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let flags = 0;
    if flags == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(not(unix))]
fn open_direct(_: &Path) -> io::Result<File> {
    let _ = OpenOptions::new();
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn drop_cached(file: &File, start: usize, len: usize) {
    // A hint, which a system need not take.
    let len = std::num::NonZeroU64::new(len as u64);
    let _ = rustix::fs::fadvise(file, start as u64, len, rustix::fs::Advice::DontNeed);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn drop_cached(_: &File, _: usize, _: usize) {}

#[cfg(unix)]
fn is_same(own: &std::fs::Metadata, named: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (own.dev(), own.ino()) == (named.dev(), named.ino())
}

#[cfg(not(unix))]
fn is_same(own: &std::fs::Metadata, named: &std::fs::Metadata) -> bool {
    own.len() == named.len()
}
