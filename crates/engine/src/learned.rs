//! What was learned of the drafters, kept from one start of the engine to the next.
//!
//! It says how often which kind of evidence came true and nothing of any text, so it is kept for all users together. It
//! is worth a few per cent of speed: whatever is wrong with the file, the engine begins with nothing learned.

use duet_files::{plain, write_whole};
use duet_speculate::confidence::Confidence;
use std::io;
use std::path::{Path, PathBuf};

/// The file of one model.
#[derive(Clone, Debug)]
pub(crate) struct LearnedFile(PathBuf);

impl LearnedFile {
    /// In `folder`, for the model of this name.
    pub(crate) fn of(folder: &Path, model: &str) -> Self {
        Self(folder.join(format!("{}.{}.drafters.json", plain(model), env!("CARGO_PKG_VERSION"))))
    }

    /// What was learned, if the file can be read.
    pub(crate) fn load(&self) -> Option<Confidence> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        Confidence::from_values(&serde_json::from_str::<Vec<_>>(&text).ok()?)
    }

    /// Writes it, whole or not at all.
    pub(crate) fn save(&self, confidence: &Confidence) -> io::Result<()> {
        write_whole(&self.0, &serde_json::to_string(&confidence.values()).map_err(io::Error::other)?)
    }
}

/// Some trials of the same evidence.
#[cfg(test)]
pub(crate) fn learn(confidence: &mut Confidence) {
    use duet_speculate::confidence::Opinions;
    use duet_speculate::drafter::Evidence;
    use duet_types::TokenId;
    let mut opinions = Opinions::default();
    opinions[0] = Evidence(5);
    let (candidates, mut chances) = ([(TokenId(1), opinions)], Vec::new());
    for _ in 0..10 {
        confidence.chances(&candidates, 0, &mut chances);
        confidence.learn(&candidates, 0, &chances, TokenId(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_is_found_again_and_anything_else_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = LearnedFile::of(&folder.path().join("not/yet/there"), "A model/with slashes");
        assert_eq!(file.load(), None);
        let mut confidence = Confidence::default();
        learn(&mut confidence);
        file.save(&confidence).unwrap();
        assert_eq!(file.load(), Some(confidence));
        for wrong in ["", "[]", "[[1.0, 2.0]]", "{", "[[null, 1.0]]"] {
            std::fs::write(&file.0, wrong).unwrap();
            assert_eq!(file.load(), None, "{wrong}");
        }
    }
}
