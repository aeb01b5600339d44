//! Files that are written whole or not at all.
//!
//! The bytes go to another name in the same folder. Only when the disk has them does the file take its own name, and then
//! the folder is written, too. So after a crash of the program or of the machine, at any moment, the name stands for the
//! old file or for the new one, and once the function has returned, for the new one.
//!
//! What cannot be made to last (a network's file system may not let a folder be written) is as safe as that system is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `text` as a part of a file's name on any system.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Writes `text` to `path`, whole or not at all; folders on the way are made. Its owner alone may read it. Waits for the
/// disk: milliseconds.
///
/// # Errors
/// As the file system says; `path` is then what it was.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    write_on(&System, path, text)
}

fn write_on(disk: &impl Disk, path: &Path, text: &str) -> io::Result<()> {
    let folder = folder_of(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    disk.sync(file.as_file())?;
    disk.rename(file.path(), path)?;
    // It has another name now, under which nothing is to be removed.
    file.disable_cleanup(true);
    sync_folder(disk, folder)
}

/// A file that somebody asked for, on its way: `NAME.partial` until it is [committed](Self::commit). Dropped before that,
/// it is removed; a killed process leaves it, and the next one that writes the same file begins it anew.
#[derive(Debug)]
pub struct WholeFile {
    /// Locked, so that one process at a time writes it.
    file: File,
    /// Absent once it has another name.
    partial: Option<PathBuf>,
    path: PathBuf,
}

impl WholeFile {
    /// Begins the file at `path`. A file that is there stays until the new one is whole. Folders are not made.
    ///
    /// # Errors
    /// As the file system says; if `path` is no file or may not be written; if another process is writing it.
    pub fn begin(path: &Path) -> io::Result<Self> {
        // The file that a link leads to is meant.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let old = match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is there and is not a file")),
            Ok(metadata) => Some(metadata),
            Err(_) => None,
        };
        if old.is_some() {
            // Taking its place would not ask.
            File::options().write(true).open(&path)?;
        }
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = locked(&partial)?;
        file.set_len(0)?;
        if let Some(old) = old {
            file.set_permissions(old.permissions())?;
        }
        Ok(Self { file, partial: Some(partial), path })
    }

    /// Gives the file its name, in the place of one that had it. Waits for the disk.
    ///
    /// # Errors
    /// As the file system says; what had the name has it still.
    pub fn commit(self) -> io::Result<()> {
        self.commit_on(&System)
    }

    /// As [`Self::commit`], if nothing has the name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something has; else as the file system says.
    pub fn commit_new(mut self) -> io::Result<()> {
        System.sync(&self.file)?;
        let Some(partial) = &self.partial else { return Ok(()) };
        // Unlike a rename, a second name is refused if it is one already. The first goes when this is dropped.
        match fs::hard_link(partial, &self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !self.path.try_exists()? => {
                // A file system without second names.
                System.rename(partial, &self.path)?;
                self.partial = None;
            }
            linked => linked?,
        }
        sync_folder(&System, folder_of(&self.path))
    }

    fn commit_on(mut self, disk: &impl Disk) -> io::Result<()> {
        disk.sync(&self.file)?;
        if let Some(partial) = &self.partial {
            disk.rename(partial, &self.path)?;
        }
        // What has that name from now on is another process's.
        self.partial = None;
        sync_folder(disk, folder_of(&self.path))
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // What cannot be removed says by its name that it is not whole.
            let _ = fs::remove_file(partial);
        }
    }
}

/// The file at `partial`, for this process alone.
fn locked(partial: &Path) -> io::Result<File> {
    loop {
        let file = File::options().write(true).create(true).truncate(false).open(partial)?;
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => return Err(io::Error::other("another process is writing it")),
            // A file system without locks.
            Err(fs::TryLockError::Error(_)) => return Ok(file),
            Ok(()) if is_called(&file, partial)? => return Ok(file),
            // Between the two steps the other process gave it its name.
            Ok(()) => {}
        }
    }
}

/// Whether the open file is the one that has this name now.
#[cfg(unix)]
fn is_called(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let open = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino())))
}

/// An open file keeps its name here.
#[cfg(not(unix))]
fn is_called(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a rename last. Where a folder cannot be opened as a file, the system sees to it.
fn sync_folder(disk: &impl Disk, folder: &Path) -> io::Result<()> {
    match File::open(folder) {
        Ok(folder) if cfg!(unix) => disk.sync(&folder),
        _ => Ok(()),
    }
}

/// The steps whose order matters. Another implementation is a disk that fails.
trait Disk {
    fn sync(&self, file: &File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The real one.
struct System;

impl Disk for System {
    fn sync(&self, file: &File) -> io::Result<()> {
        match file.sync_all() {
            // It cannot be asked for here (a folder on a network's file system).
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A machine that loses its power at some step. Then the disk has what was synced: of a file its bytes, of a folder its
    /// names; a file whose name is there without its bytes is empty.
    struct Losing {
        steps: RefCell<Vec<&'static str>>,
        fails_at: usize,
    }

    impl Losing {
        fn step(&self, name: &'static str) -> io::Result<()> {
            let mut steps = self.steps.borrow_mut();
            if steps.len() == self.fails_at {
                return Err(io::Error::other("no power"));
            }
            steps.push(name);
            Ok(())
        }
    }

    impl Disk for Losing {
        fn sync(&self, file: &File) -> io::Result<()> {
            self.step(if file.metadata()?.is_dir() { "folder" } else { "bytes" })
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.step("name")?;
            fs::rename(from, to)
        }
    }

    /// What stands under the name after power was lost at step `fails_at`, and whether the caller was told that it lasts.
    fn after_losing_power(write: impl Fn(&Losing, &Path) -> io::Result<()>, fails_at: usize) -> (String, bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let disk = Losing { steps: RefCell::default(), fails_at };
        let told = write(&disk, &path).is_ok();
        let steps = disk.steps.into_inner();
        let at = |name: &str| steps.iter().position(|step| *step == name);
        let found = match (at("bytes"), at("name"), at("folder")) {
            // The rename may or may not have reached the disk; what matters is that the bytes were there first.
            (Some(bytes), Some(name), None) if bytes < name => "old or new",
            (Some(bytes), Some(name), Some(folder)) if bytes < name && name < folder => "new",
            (_, Some(_), _) => "empty",
            (_, None, _) => "old",
        };
        let there = fs::read_to_string(&path).unwrap();
        assert!(found.contains(&there) || found == "empty", "{there:?} at step {fails_at}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        (found.to_owned(), told)
    }

    #[test]
    fn without_power_the_name_stands_for_the_old_file_or_the_new_one() {
        let whole = |disk: &Losing, path: &Path| write_on(disk, path, "new");
        let long = |disk: &Losing, path: &Path| {
            let mut file = WholeFile::begin(path)?;
            file.write_all(b"new")?;
            file.commit_on(disk)
        };
        for write in [&whole as &dyn Fn(&Losing, &Path) -> io::Result<()>, &long] {
            let found: Vec<_> = (0..5).map(|step| after_losing_power(write, step)).collect();
            let expected = [("old", false), ("old", false), ("old or new", false), ("new", true), ("new", true)];
            assert_eq!(found, expected.map(|(found, told)| (found.to_owned(), told)));
        }
    }

    #[test]
    fn until_it_is_committed_the_old_file_stands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let mut file = WholeFile::begin(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert!(WholeFile::begin(&path).unwrap_err().to_string().contains("another process is writing it"));
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // What a killed process left is not taken for the beginning of the next one's.
        fs::write(folder.path().join("file.partial"), "left over and long").unwrap();
        let mut file = WholeFile::begin(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Many at once: each is refused or writes all of its file, and at no moment is there another one.
    #[test]
    fn writers_at_the_same_time_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        if let Ok(mut file) = WholeFile::begin(path) {
                            file.write_all(&[writer; 1000]).unwrap();
                            file.commit().unwrap();
                            let bytes = fs::read(path).unwrap();
                            assert!(bytes.len() == 1000 && bytes.iter().all(|byte| *byte == bytes[0]));
                        }
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_takes_nobodys_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let write = |text: &str| {
            let mut file = WholeFile::begin(&path)?;
            file.write_all(text.as_bytes())?;
            file.commit_new()
        };
        write("one").unwrap();
        assert_eq!(write("two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_a_person_has_set_up_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut file = WholeFile::begin(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(WholeFile::begin(folder.path()).unwrap_err().to_string().contains("not a file"));
    }
}
