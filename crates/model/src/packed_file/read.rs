//! Opens a file of packed weights, checked.

use super::{Digest, Entry, HEADER, MAGIC, SectionEntry, Table, VERSION, name_of};
use crate::disk_experts::{ExpertPlace, MatrixPlace, SectionPlace};
use crc32fast::Hasher;
use duet_kernels::packed::{Form, Lend, Lender, PackedMatrix, section_bytes};
use duet_kernels::quantize::GROUP;
use hashbrown::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A file of packed weights that is whole.
pub(crate) struct PackedFile {
    pub(super) bytes: Lender,
    pub(super) matrices: HashMap<String, Entry>,
    /// Whether it had every matrix that it was asked for.
    pub(super) fits: AtomicBool,
}

/// A file that is mapped.
struct MappedFile(memmap2::Mmap);

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Lend for MappedFile {}

/// Where weights are that lie in a file of packed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightsIn {
    /// The file is mapped: processes share its memory, and the system takes what it needs for something else.
    #[default]
    MappedFile,
    /// They are read into memory of the process's own, which a device can be given that shares the processor's memory. Only on
    /// Unix; elsewhere that is [`Unusable::Memory`].
    OwnMemory,
}

/// What of a file is compared with its checksums when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// All of it.
    All,
    /// All but experts, which are checked whenever one is read.
    AllButExperts,
    /// Nothing but where everything lies: whoever asks has just written it.
    Places,
}

impl Check {
    pub(super) fn covers(self, entry: &Entry) -> bool {
        match self {
            Self::All => true,
            Self::AllButExperts => !crate::weights::is_of_expert(&entry.name),
            Self::Places => false,
        }
    }
}

/// What is done about a file of packed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackedFileUse {
    /// All of it is compared with its checksums. If it cannot be used, weights are packed in memory.
    #[default]
    OrPackInMemory,
    /// The same, but if it cannot be used, that is [`LoadError::NotPacked`](crate::LoadError::NotPacked).
    OrRefuse,
    /// This process wrote it just now: its panels are not read before they are needed.
    JustWritten,
}

/// Why a file of packed weights is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// There is none, or it cannot be read.
    #[error("it is not there")]
    Absent,
    /// It is something else.
    #[error("it is no file of packed weights")]
    Foreign,
    /// Another duet wrote it.
    #[error("it is of another version")]
    Version,
    /// It belongs to a file of other weights.
    #[error("it is of another model")]
    OtherModel,
    /// Its end is missing, or bytes of it are not those that were written.
    #[error("it is damaged")]
    Damaged,
    /// It was to be read into memory that the system does not give.
    #[error("there is no memory for it")]
    Memory,
    /// It has other matrices than the model.
    #[error("its weights are packed in another way")]
    Packing,
}

impl PackedFile {
    /// Opens the file at `path`, if its weights are those of `digest`, and checks it on `threads` threads.
    ///
    /// # Errors
    /// [`Unusable`], for which the weights are to be packed again.
    pub(crate) fn open(
        path: &Path,
        digest: &Digest,
        (weights_in, check, threads): (WeightsIn, Check, usize),
    ) -> Result<Self, Unusable> {
        // Opened once: another process may put another file in its place.
        let (file, map) = crate::gguf::map_file(path).map_err(|_| Unusable::Absent)?;
        match weights_in {
            WeightsIn::MappedFile => Self::mapped(map, digest, (check, threads)),
            WeightsIn::OwnMemory => {
                Self::mapped(map, digest, (Check::Places, threads))?.in_own_memory(&file, (check, threads))
            }
        }
    }

    fn mapped(map: memmap2::Mmap, digest: &Digest, (check, threads): (Check, usize)) -> Result<Self, Unusable> {
        // A hint, which a system need not take: all of it is read now.
        #[cfg(unix)]
        if check == Check::All {
            let _ = map.advise(memmap2::Advice::WillNeed);
        }
        Self::check(Arc::new(MappedFile(map)), digest, (check, threads))
    }

    /// The same for bytes that are in memory.
    pub(super) fn check(bytes: Lender, digest: &Digest, (check, threads): (Check, usize)) -> Result<Self, Unusable> {
        let all = bytes.as_ref().as_ref();
        let (header, rest) = all.split_at_checked(HEADER).ok_or(Unusable::Foreign)?;
        if header[..8] != MAGIC {
            return Err(Unusable::Foreign);
        }
        let number = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|at| header[from + at]));
        if number(8) != VERSION {
            return Err(Unusable::Version);
        }
        if header[24..] != digest[..] {
            return Err(Unusable::OtherModel);
        }
        let len = usize::try_from(u64::from(number(16)) | u64::from(number(20)) << 32);
        let table = len.ok().and_then(|len| rest.get(..len)).ok_or(Unusable::Damaged)?;
        if crc32fast::hash(table) != number(12) {
            return Err(Unusable::Damaged);
        }
        // Whole, and yet of another form: written by a duet that forgot to change the version.
        let table: Table = serde_json::from_slice(table).map_err(|_| Unusable::Version)?;
        check_panels(all, &table, (check, threads))?;
        let matrices = table.matrices.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        Ok(Self { bytes, matrices, fits: AtomicBool::new(true) })
    }

    /// The matrix of this name, if there is one of so many inputs and these outputs and forms, one below the other.
    pub(crate) fn matrix(&self, name: &str, inputs: usize, forms: &[(usize, Form)]) -> Option<PackedMatrix> {
        let found = self.find(name, inputs, forms);
        if found.is_none() {
            self.fits.store(false, Ordering::Relaxed);
        }
        found
    }

    /// Where the matrix of this name lies, likewise.
    pub(crate) fn place(&self, name: &str, inputs: usize, forms: &[(usize, Form)]) -> Option<MatrixPlace> {
        let found = self.entry(name, inputs, forms).and_then(|entry| {
            let section = |(section, (outputs, form)): (&SectionEntry, &(usize, Form))| {
                let ([quants, scales], crc) = (ranges(entry, section)?, section.crc);
                Some(SectionPlace { form: *form, outputs: *outputs, quants, scales, crc })
            };
            let sections = entry.sections.iter().zip(forms).map(section).collect::<Option<_>>()?;
            Some(MatrixPlace { inputs, sections })
        });
        if found.is_none() {
            self.fits.store(false, Ordering::Relaxed);
        }
        found
    }

    /// Notes it if an expert's matrices do not lie together.
    pub(crate) fn together(&self, expert: Option<ExpertPlace>) -> Option<ExpertPlace> {
        if expert.is_none() {
            self.fits.store(false, Ordering::Relaxed);
        }
        expert
    }

    /// Whether it had every matrix that it was asked for.
    pub(crate) fn fits(&self) -> bool {
        self.fits.load(Ordering::Relaxed)
    }

    fn entry(&self, name: &str, inputs: usize, forms: &[(usize, Form)]) -> Option<&Entry> {
        let entry = self.matrices.get(name).filter(|entry| entry.inputs == inputs)?;
        let fits = |(section, form): (&SectionEntry, &(usize, Form))| {
            (section.outputs, section.form.as_str()) == (form.0, name_of(form.1).as_str())
        };
        if entry.sections.len() != forms.len() || !entry.sections.iter().zip(forms).all(fits) {
            return None;
        }
        Some(entry)
    }

    fn find(&self, name: &str, inputs: usize, forms: &[(usize, Form)]) -> Option<PackedMatrix> {
        let entry = self.entry(name, inputs, forms)?;
        let place =
            |(section, form): (&SectionEntry, &(usize, Form))| (form.0, form.1, [section.quants, section.scales]);
        let sections: Vec<_> = entry.sections.iter().zip(forms).map(place).collect();
        PackedMatrix::lent(inputs, &sections, &self.bytes)
    }
}

/// Compares the checksums of all panels, a section at a time on each thread.
fn check_panels(all: &[u8], table: &Table, (check, threads): (Check, usize)) -> Result<(), Unusable> {
    let sections: Vec<(&Entry, &SectionEntry)> =
        table.matrices.iter().flat_map(|entry| entry.sections.iter().map(move |section| (entry, section))).collect();
    let (next, whole) = (AtomicUsize::new(0), AtomicBool::new(true));
    let work = || {
        while let Some((entry, section)) = sections.get(next.fetch_add(1, Ordering::Relaxed)) {
            let is_whole =
                panels(all, entry, section).is_some_and(|parts| !check.covers(entry) || crc(parts) == section.crc);
            if !is_whole {
                whole.store(false, Ordering::Relaxed);
                return;
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

/// The quants and scales of a section, if they lie in the file.
fn panels<'a>(all: &'a [u8], entry: &Entry, section: &SectionEntry) -> Option<[&'a [u8]; 2]> {
    let [quants, scales] = ranges(entry, section)?;
    Some([all.get(quants)?, all.get(scales)?])
}

/// Where they lie.
pub(super) fn ranges(entry: &Entry, section: &SectionEntry) -> Option<[Range<usize>; 2]> {
    let form = Form::ALL.into_iter().find(|form| name_of(*form) == section.form)?;
    // Beyond this lengths would not be numbers; no file is as long.
    let sane = |count: usize| count < 1 << 28;
    if !sane(entry.inputs) || !sane(section.outputs) {
        return None;
    }
    let [quants, scales] = section_bytes(section.outputs, entry.inputs.div_ceil(GROUP), form);
    let range = |from: usize, len: usize| Some(from..from.checked_add(len)?);
    Some([range(section.quants, quants)?, range(section.scales, scales)?])
}

pub(super) fn crc(parts: [&[u8]; 2]) -> u32 {
    let mut hasher = Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

impl std::fmt::Debug for PackedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedFile[{} matrices]", self.matrices.len())
    }
}
