//! Models in several files, as llama.cpp splits them: `NAME-00001-of-00003.gguf` and so on, each a GGUF file of its own. The
//! first has what is said of the model, and each some of its tensors.

use super::{GgufError, Metadata};
use std::path::{Path, PathBuf};

/// What the keys begin with that say which part a file is.
pub(super) const PREFIX: &str = "split.";

/// Digits of a number in a name.
const DIGITS: usize = 5;

/// Which part of how many a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// From zero.
    pub(super) index: usize,
    pub(super) count: usize,
}

impl Place {
    /// What a file says of itself; a file that says nothing is whole.
    pub(super) fn read(metadata: &Metadata) -> Result<Self, GgufError> {
        let number = |key| Ok::<_, GgufError>(metadata.opt_u32(key)?.map(|number| number as usize));
        Ok(Self { index: number("split.no")?.unwrap_or(0), count: number("split.count")?.unwrap_or(1).max(1) })
    }

    /// That the file at `path` is this part, if it is the first; else which one is.
    pub(super) fn require_first(self, path: &Path) -> Result<(), GgufError> {
        if self.index == 0 {
            return Ok(());
        }
        let first = names(path).and_then(|names| names.into_iter().next());
        let first = first.map_or_else(|| "NAME-00001-of-….gguf".to_owned(), |first| first.display().to_string());
        Err(GgufError::Split(format!("part {} of {}; name the first one: {first}", self.index + 1, self.count)))
    }

    /// That a file that was opened as another part is that.
    pub(super) fn require(self, expected: Self) -> Result<(), GgufError> {
        if self == expected {
            return Ok(());
        }
        let shown = |place: Self| format!("part {} of {}", place.index + 1, place.count);
        Err(GgufError::Split(format!("{}, where its name says {}", shown(self), shown(expected))))
    }
}

/// The paths of all parts of a model, if that of one of them is named as parts are.
#[must_use]
pub fn names(path: &Path) -> Option<Vec<PathBuf>> {
    let name = path.file_name()?.to_str()?;
    let (prefix, rest) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = prefix.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(number) || !is_number(rest) {
        return None;
    }
    let name = |index: usize| path.with_file_name(format!("{stem}-{:0DIGITS$}-of-{rest}.gguf", index + 1));
    Some((0..rest.parse().ok()?).map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_number() {
        let names = |path: &str| {
            let names = names(Path::new(path))?;
            Some(names.into_iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        let expected = ["m/a-b-00001-of-00002.gguf", "m/a-b-00002-of-00002.gguf"].map(str::to_owned).to_vec();
        assert_eq!(names("m/a-b-00001-of-00002.gguf"), Some(expected.clone()));
        assert_eq!(names("m/a-b-00002-of-00002.gguf"), Some(expected));
        for other in ["a.gguf", "a-00001-of-00002", "a-1-of-2.gguf", "-of-.gguf"] {
            assert_eq!(names(other), None, "{other}");
        }
    }
}
