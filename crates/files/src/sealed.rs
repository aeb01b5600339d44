//! A value in a file of JSON, with what it is and the digest of its text.
//!
//! ```json
//! {"kind":"numbers 1","sha256":"d0f4…","value":[1,2,3]}
//! ```
//!
//! The kind has the format's version in it. The digest is for damage, not for malice: whoever can write to the folder
//! can do worse.

use crate::whole::write_whole;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;

#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    kind: &'a str,
    sha256: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// Writes `value` as one of this kind, whole or not at all; folders on the way are made.
///
/// # Errors
/// As the file system says, or if the value has no text.
pub fn write<T: Serialize>(path: &Path, kind: &str, value: &T) -> io::Result<()> {
    let value = serde_json::value::to_raw_value(value)?;
    let sealed = Sealed { kind, sha256: digest(value.get()), value: &value };
    write_whole(path, &serde_json::to_string(&sealed)?)
}

/// Reads a value of this kind. None if there is no file, or another one, or one that was changed since.
#[must_use]
pub fn read<T: DeserializeOwned>(path: &Path, kind: &str) -> Option<T> {
    let text = std::fs::read_to_string(path).ok()?;
    let sealed: Sealed<'_> = serde_json::from_str(&text).ok()?;
    let is_whole = sealed.kind == kind && sealed.sha256 == digest(sealed.value.get());
    is_whole.then(|| serde_json::from_str(sealed.value.get()).ok()).flatten()
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_and_what_was_changed_is_not(
            numbers in prop::collection::vec(any::<u64>(), 0..20), at in any::<prop::sample::Index>(), flip in 1_u8..=255,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("not/yet/there.json");
            write(&path, "numbers 1", &numbers).unwrap();
            prop_assert_eq!(read::<Vec<u64>>(&path, "numbers 1"), Some(numbers.clone()));
            prop_assert_eq!(read::<Vec<u64>>(&path, "numbers 2"), None);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            std::fs::write(&path, &bytes).unwrap();
            let found = read::<Vec<u64>>(&path, "numbers 1");
            prop_assert!(found.is_none() || found == Some(numbers), "byte {} changed unseen", at);
        }
    }

    #[test]
    fn what_is_cut_off_or_not_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers.json");
        assert_eq!(read::<Vec<u64>>(&path, "numbers 1"), None);
        write(&path, "numbers 1", &[1_u64, 2]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(read::<Vec<u64>>(&path, "numbers 1"), None, "{end} bytes");
        }
    }
}
