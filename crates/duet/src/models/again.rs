//! A downloaded model is checked against its digest again each time it is packed.
//!
//! When it came its bytes were hashed, and its sum was noted beside it, the hub's or the one that is built in. A note spares
//! hashing at each start; where weights are packed every byte is read anyway, and what is packed is believed from then on.
//! So all of the file is hashed once more. Meanwhile it is packed: that takes longer.

use super::verified::{self, Finding};
use crate::bad_input::BadInput;
use duet_model::gguf::names_of_parts;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A check.
#[derive(Debug)]
pub(crate) enum Check {
    /// It is on a thread of its own.
    UnderWay(JoinHandle<Result<(), BadInput>>),
    /// It is done; of a file that was not downloaded, or whose sum nobody knows, there is nothing to check.
    Done(Result<(), BadInput>),
}

impl Check {
    /// Begins to hash the file at `path`, and the other parts of the model.
    pub(crate) fn begin(path: &Path) -> Self {
        let noted: Vec<(PathBuf, String)> =
            parts(path).into_iter().filter_map(|part| Some((part.clone(), verified::noted(&part)?))).collect();
        if noted.is_empty() {
            return Self::Done(Ok(()));
        }
        let all = move || noted.iter().try_for_each(|(path, sha256)| check(path, sha256));
        let spawned = std::thread::Builder::new().name("duet-digest".to_owned()).spawn(all.clone());
        spawned.map_or_else(|_| Self::Done(all()), Self::UnderWay)
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// That the file is not what was downloaded.
    pub(crate) fn finish(self) -> Result<(), BadInput> {
        match self {
            Self::UnderWay(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Self::Done(outcome) => outcome,
        }
    }
}

fn check(path: &Path, sha256: &str) -> Result<(), BadInput> {
    let shown = path.display();
    match verified::check_in_full(path, sha256) {
        Ok(Finding::Right) => Ok(()),
        Ok(Finding::Wrong { actual }) => Err(BadInput(format!(
            "{shown} is not what was downloaded (expected sha256 {sha256}, got {actual}); delete it, and the next command downloads it again"
        ))),
        Err(error) => Err(BadInput(format!("{shown}: {error}"))),
    }
}

/// The files of a model: itself, or all of its parts.
fn parts(path: &Path) -> Vec<PathBuf> {
    names_of_parts(path).unwrap_or_else(|| vec![path.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::fs::{self, File};

    fn note(path: &Path, bytes: &[u8]) {
        verified::note(path, &crate::models::partial::hex(&Sha256::digest(bytes)));
    }

    #[test]
    fn a_file_is_hashed_again_whatever_its_note_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fs::write(&path, "GGUF right").unwrap();
        assert!(Check::begin(&path).finish().is_ok(), "a person's own file has no sum");
        note(&path, b"GGUF right");
        assert!(Check::begin(&path).finish().is_ok());
        // As long, and changed at the same time: what a note goes by.
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "GGUF wrong").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
        let refused = Check::begin(&path).finish().unwrap_err().to_string();
        assert!(refused.contains("is not what was downloaded") && refused.contains("m.gguf"), "{refused}");
    }

    #[test]
    fn each_part_of_a_model_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"].map(|name| folder.path().join(name));
        for path in [&first, &second] {
            fs::write(path, "GGUF part").unwrap();
            note(path, b"GGUF part");
        }
        assert!(Check::begin(&first).finish().is_ok());
        fs::write(&second, "GGUF pert").unwrap();
        assert!(Check::begin(&first).finish().unwrap_err().to_string().contains("00002-of-00002"));
    }
}
