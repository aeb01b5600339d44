//! A GGUF file, or one in several parts, in memory: mapped, checked once, then handed out in borrowed pieces.
//!
//! After construction: names are unique, and every tensor lies within its part, aligned, apart from all others.

use super::split::{self, Place};
use super::{GgufError, Metadata, Tensor, TensorInfo, parse};
use memmap2::Mmap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, fs::File, path::Path, time::SystemTime};

/// A model file. Its tensors' bytes stay where they are; the operating system reads them when they are touched.
///
/// The file must not be changed or cut short while this exists: weights would change under the model's feet, and
/// touching a part that is gone ends the process (`SIGBUS`). Replacing it by renaming another over it is safe.
pub struct GgufFile {
    parts: Vec<Part>,
    version: u32,
    metadata: Metadata,
    /// Those of the first part, then those of the next.
    tensors: Vec<TensorInfo>,
    /// Indices of `tensors` in the order of their names.
    sorted: Vec<usize>,
    /// Which tensors were asked for.
    asked: Vec<AtomicBool>,
}

/// The bytes of a file.
struct Part {
    bytes: Storage,
    /// Where the tensors' bytes start in it.
    data_start: usize,
    /// How many tensors are in it and in those before it.
    tensors_end: usize,
    /// When the file was last changed, where that is known.
    modified: Option<SystemTime>,
}

enum Storage {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl GgufFile {
    /// Maps and checks a file. Reads the header only: milliseconds, whatever the size of the weights.
    ///
    /// # Errors
    /// [`GgufError::File`] with the path and what is wrong.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let of = |path: &Path, problem| GgufError::File { path: path.into(), problem: Box::new(problem) };
        let open = |path: &Path| {
            // Asked before mapping: what is changed meanwhile is then taken for changed.
            let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
            let mut file = map(path).and_then(|(_, map)| Self::new(Storage::Mapped(map)))?;
            file.parts.iter_mut().for_each(|part| part.modified = modified);
            Ok(file)
        };
        let mut file = open(path).map_err(|problem| of(path, problem))?;
        let place = Place::read(&file.metadata).map_err(|problem| of(path, problem))?;
        place.require_first(path).map_err(|problem| of(path, problem))?;
        if place.count == 1 {
            return Ok(file);
        }
        let names = split::names(path).filter(|names| names.len() == place.count).ok_or_else(|| {
            let problem = format!("1 of {0}, but it is not named as one: NAME-00001-of-{0:05}.gguf", place.count);
            of(path, GgufError::Split(problem))
        })?;
        for (index, name) in names.iter().enumerate().skip(1) {
            let joined = open(name).and_then(|part| {
                Place::read(&part.metadata)?.require(Place { index, ..place })?;
                file.join(part)
            });
            joined.map_err(|problem| of(name, problem))?;
        }
        // It is whole now, and whoever writes it again writes it whole.
        let metadata = file.metadata.without(split::PREFIX).map_err(|problem| of(path, problem))?;
        Ok(Self { metadata, ..file })
    }

    /// Adds the tensors of another part.
    fn join(&mut self, other: Self) -> Result<(), GgufError> {
        let before = self.tensors.len();
        self.tensors.extend(other.tensors);
        self.sorted = sorted_by_name(&self.tensors)?;
        self.asked = not_asked(self.tensors.len());
        let moved = other.parts.into_iter().map(|part| Part { tensors_end: before + part.tensors_end, ..part });
        self.parts.extend(moved);
        Ok(())
    }

    /// Checks a file that is already in memory.
    ///
    /// # Errors
    /// [`GgufError`] says what is wrong.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::new(Storage::Owned(bytes))
    }

    fn new(bytes: Storage) -> Result<Self, GgufError> {
        let file = bytes.as_slice();
        let parse::Header { version, metadata, tensors, alignment, len } = parse::header(file)?;
        // Cannot overflow: a slice is at most `isize::MAX` long.
        let data_start = len.next_multiple_of(alignment as usize);
        for tensor in &tensors {
            check_place(tensor, data_start, alignment, file.len())?;
        }
        check_apart(&tensors)?;
        let sorted = sorted_by_name(&tensors)?;
        let part = Part { bytes, data_start, tensors_end: tensors.len(), modified: None };
        let asked = not_asked(tensors.len());
        Ok(Self { parts: vec![part], version, metadata, tensors, sorted, asked })
    }

    /// The key-value part.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors' descriptions in the order of the file.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name. O(log tensors).
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let index = self.index(name)?;
        self.asked[index].store(true, Ordering::Relaxed);
        Some(Tensor::new(&self.tensors[index], self.data(index)?))
    }

    /// The bytes of a tensor by its number; it counts as [`Self::unread`] all the same.
    pub(crate) fn data(&self, index: usize) -> Option<&[u8]> {
        let (part, info) = self.at(index)?;
        // Within the file since construction.
        let start = part.data_start + info.offset() as usize;
        Some(&part.bytes.as_slice()[start..][..info.bytes()])
    }

    /// The names of tensors that nobody has asked for yet.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        let unread = self.tensors.iter().zip(&self.asked).filter(|(_, asked)| !asked.load(Ordering::Relaxed));
        unread.map(|(tensor, _)| tensor.name.as_str())
    }

    fn index(&self, name: &str) -> Option<usize> {
        let place = self.sorted.binary_search_by_key(&name, |&index| self.tensors[index].name.as_str()).ok()?;
        Some(self.sorted[place])
    }

    /// A tensor and the part that it is in.
    fn at(&self, index: usize) -> Option<(&Part, &TensorInfo)> {
        let part = self.parts.partition_point(|part| part.tensors_end <= index);
        Some((self.parts.get(part)?, &self.tensors[index]))
    }

    /// Lets the operating system take back the memory behind a tensor's bytes. Always safe, may do nothing: the bytes
    /// are read from the file again when they are next touched.
    pub fn forget(&self, tensor: &TensorInfo) {
        #[cfg(unix)]
        if let Some((Part { bytes: Storage::Mapped(map), data_start, .. }, tensor)) =
            self.index(&tensor.name).and_then(|index| self.at(index))
        {
            let start = data_start + tensor.offset() as usize;
            // SAFETY: the map is a private, read-only map of a file: dropped pages come back with the same bytes.
            // The range is within the map, as all tensors are. A refusal only keeps the memory in use.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, tensor.bytes()) };
        }
        #[cfg(not(unix))]
        let _ = tensor;
    }

    /// Gives back the memory of what stands before the tensors: vocabularies take megabytes, and are read once. They are read
    /// from the file again if somebody asks.
    pub(crate) fn forget_headers(&self) {
        self.forget_beginnings(|part| part.data_start);
    }

    /// Gives back the memory of all that was read, as [`Self::forget`] does.
    pub(crate) fn forget_all(&self) {
        self.forget_beginnings(|part| part.bytes.as_slice().len());
    }

    fn forget_beginnings(&self, length: impl Fn(&Part) -> usize) {
        #[cfg(unix)]
        for part in &self.parts {
            if let Storage::Mapped(map) = &part.bytes {
                let length = length(part).min(map.len());
                // SAFETY: as in `forget`, and the range is within the map. A refusal only keeps the memory in use.
                let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, 0, length) };
            }
        }
        #[cfg(not(unix))]
        let _ = length;
    }

    /// How long each part is and when it was last changed, where that is known.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (usize, Option<SystemTime>)> {
        self.parts.iter().map(|part| (part.bytes.as_slice().len(), part.modified))
    }

    /// All bytes before the tensors', of each part.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &[u8]> {
        // Within the file since construction, unless it has no tensors.
        self.parts.iter().map(|part| part.bytes.as_slice().get(..part.data_start).unwrap_or(part.bytes.as_slice()))
    }

    /// The version of the file's layout: 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }
}

impl fmt::Debug for GgufFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufFile")
            .field("version", &self.version)
            .field("bytes", &self.parts.iter().map(|part| part.bytes.as_slice().len()).sum::<usize>())
            .field("metadata", &self.metadata.iter().len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}

impl Storage {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// Opens a file and maps it to read it. Whoever does promises what [`GgufFile`] asks: that nobody changes it meanwhile.
pub(crate) fn map(path: &Path) -> Result<(File, Mmap), GgufError> {
    let failed = |action| move |error| GgufError::Io { action, error };
    // Asked before opening: opening a pipe would wait for its other end.
    if !path.metadata().map_err(failed("open the file"))?.is_file() {
        return Err(GgufError::NotRegularFile);
    }
    let file = File::open(path).map_err(failed("open the file"))?;
    // SAFETY: the map is read-only, and the documentation of `GgufFile` asks that nobody change the file meanwhile: that
    // is the one condition, and no program can enforce it. Should it be broken, all bounds still come from the length
    // of the map, which does not change, and weights are plain numbers for which every bit pattern is valid.
    let map = unsafe { Mmap::map(&file) }.map_err(failed("map the file"))?;
    Ok((file, map))
}

/// A tensor must start on the alignment and end within the file.
fn check_place(tensor: &TensorInfo, data_start: usize, alignment: u32, file_len: usize) -> Result<(), GgufError> {
    if !tensor.offset().is_multiple_of(alignment.into()) {
        return Err(GgufError::Misaligned { tensor: tensor.name.clone(), offset: tensor.offset(), alignment });
    }
    let start = (data_start as u64).saturating_add(tensor.offset());
    let available = (file_len as u64).saturating_sub(start);
    if tensor.bytes() as u64 > available {
        return Err(GgufError::Truncated {
            field: format!("tensor `{}`", tensor.name),
            offset: start,
            needed: tensor.bytes() as u64,
            available,
        });
    }
    Ok(())
}

/// No writer lets tensors share bytes; a hostile file could make a loader unpack the same bytes a thousand times.
/// So the tensors' sizes add up to no more than the file's.
fn check_apart(tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut by_place: Vec<&TensorInfo> = tensors.iter().collect();
    by_place.sort_by_key(|tensor| tensor.offset());
    match by_place.windows(2).find(|pair| pair[0].offset() + pair[0].bytes() as u64 > pair[1].offset()) {
        Some(pair) => Err(GgufError::Overlap { first: pair[0].name.clone(), second: pair[1].name.clone() }),
        None => Ok(()),
    }
}

fn not_asked(tensors: usize) -> Vec<AtomicBool> {
    std::iter::repeat_with(AtomicBool::default).take(tensors).collect()
}

fn sorted_by_name(tensors: &[TensorInfo]) -> Result<Vec<usize>, GgufError> {
    let mut sorted: Vec<usize> = (0..tensors.len()).collect();
    sorted.sort_unstable_by_key(|&index| tensors[index].name.as_str());
    match sorted.windows(2).find(|pair| tensors[pair[0]].name == tensors[pair[1]].name) {
        Some(pair) => Err(GgufError::DuplicateTensor(tensors[pair[0]].name.clone())),
        None => Ok(sorted),
    }
}
