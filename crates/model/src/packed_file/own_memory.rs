//! Reads a file of packed weights into memory of the process's own: for a device that shares the processor's memory, so that both
//! have the same weights. Memory that is a file's, as a mapped one's, drivers do not take from a process everywhere (docs/gpu.md).
//!
//! Matrices lie in another order there: those of a layer's experts one behind the other, the quants of all and then their scales,
//! since a device is given them together.

use super::read::{Check, PackedFile, crc, ranges};
use super::{ALIGNMENT, Entry, Unusable};
use crate::read_at::read_exact_at;
use crate::weights::name_without_expert;
use duet_kernels::memory::Aligned;
use hashbrown::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a device binds begins at a multiple of this, whatever device it is (WebGPU's limit).
const BOUND_AT: usize = 256;

/// Where quants and scales of each section of a matrix lie in the file, and where they are to lie in memory.
struct Move {
    entry: Entry,
    sections: Vec<[Range<usize>; 2]>,
    places: Vec<[usize; 2]>,
}

/// A section on its way: where it lies in the file, and where it comes to.
struct Job<'a> {
    from: &'a [Range<usize>; 2],
    into: [&'a mut [u8]; 2],
    /// None if it is not compared.
    crc: Option<u32>,
}

impl PackedFile {
    /// The same weights in memory, read from the `file` that was mapped, and compared with their checksums.
    ///
    /// # Errors
    /// [`Unusable`], if it cannot be read or is damaged, or the system gives no memory.
    pub(super) fn in_own_memory(self, file: &File, (check, threads): (Check, usize)) -> Result<Self, Unusable> {
        let mut moves =
            self.matrices.into_values().map(Move::of).collect::<Option<Vec<_>>>().ok_or(Unusable::Damaged)?;
        // Two that lie in the same bytes nobody wrote.
        let wanted = moves.iter().flat_map(|one| one.sections.iter().flatten()).map(Range::len);
        if wanted.fold(0, usize::saturating_add) > self.bytes.as_ref().as_ref().len() {
            return Err(Unusable::Damaged);
        }
        let bytes = lay_out(&mut moves);
        let mut memory = Aligned::<u8>::of_the_system(bytes).ok_or(Unusable::Memory)?;
        read(file, jobs(&moves, &mut memory, check), threads)?;
        let moved = |to: Move| (to.entry.name.clone(), to.into_entry());
        Ok(Self {
            bytes: Arc::new(memory),
            matrices: moves.into_iter().map(moved).collect::<HashMap<_, _>>(),
            fits: self.fits,
        })
    }
}

impl Move {
    fn of(entry: Entry) -> Option<Self> {
        let sections = entry.sections.iter().map(|section| ranges(&entry, section)).collect::<Option<Vec<_>>>()?;
        Some(Self { places: vec![[0; 2]; sections.len()], sections, entry })
    }

    /// What lies together with others, and its place among them.
    fn order(&self) -> (&str, usize) {
        name_without_expert(&self.entry.name)
    }

    fn into_entry(self) -> Entry {
        let Self { mut entry, places, .. } = self;
        for (section, [quants, scales]) in entry.sections.iter_mut().zip(places) {
            (section.quants, section.scales) = (quants, scales);
        }
        entry
    }
}

/// Gives all of them their places; how many bytes they take.
fn lay_out(moves: &mut [Move]) -> usize {
    moves.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut at = 0_usize;
    for together in moves.chunk_by_mut(|a, b| a.order().0 == b.order().0) {
        let sections = together.iter().map(|one| one.sections.len()).max().unwrap_or(0);
        for (section, part) in (0..sections).flat_map(|section| [(section, 0), (section, 1)]) {
            at = at.next_multiple_of(BOUND_AT);
            for one in &mut *together {
                if let (Some(from), Some(place)) = (one.sections.get(section), one.places.get_mut(section)) {
                    at = at.next_multiple_of(ALIGNMENT);
                    place[part] = at;
                    at += from[part].len();
                }
            }
        }
    }
    at
}

/// What is to be read, and where to.
fn jobs<'a>(moves: &'a [Move], mut memory: &'a mut [u8], check: Check) -> Vec<Job<'a>> {
    let mut parts: Vec<(usize, usize, [usize; 3])> = Vec::new();
    for (index, one) in moves.iter().enumerate() {
        for (section, (from, place)) in one.sections.iter().zip(&one.places).enumerate() {
            parts.extend([0, 1].map(|part| (place[part], from[part].len(), [index, section, part])));
        }
    }
    parts.sort_unstable();
    let (mut passed, mut cut) = (0, HashMap::<(usize, usize), [&'a mut [u8]; 2]>::new());
    for (place, len, [index, section, part]) in parts {
        let (_, rest) = memory.split_at_mut(place - passed);
        let (into, rest) = rest.split_at_mut(len);
        (memory, passed) = (rest, place + len);
        cut.entry((index, section)).or_default()[part] = into;
    }
    let job = |((index, section), into): ((usize, usize), [&'a mut [u8]; 2])| {
        let one = &moves[index];
        let crc = check.covers(&one.entry).then(|| one.entry.sections[section].crc);
        Job { from: &one.sections[section], into, crc }
    };
    cut.into_iter().map(job).collect()
}

/// Reads all of them, one at a time on each thread.
fn read(file: &File, mut jobs: Vec<Job<'_>>, threads: usize) -> Result<(), Unusable> {
    // As they lie in the file, for disks that read ahead.
    jobs.sort_by_key(|job| job.from[0].start);
    let (next, whole) = (Mutex::new(jobs.into_iter()), AtomicBool::new(true));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next().filter(|_| whole.load(Ordering::Relaxed));
    let work = || {
        while let Some(Job { from, into: [quants, scales], crc: expected }) = take() {
            let one = |into: &mut [u8], from: &Range<usize>| read_exact_at(file, into, from.start as u64).is_ok();
            let is_read = one(quants, &from[0]) && one(scales, &from[1]);
            if !is_read || expected.is_some_and(|expected| crc([quants, scales]) != expected) {
                whole.store(false, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    if whole.into_inner() { Ok(()) } else { Err(Unusable::Damaged) }
}
