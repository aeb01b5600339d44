//! What tells a model's file from every other one, without reading all of it.

use crate::gguf::GgufFile;
use crate::load::Model;
use sha2::{Digest, Sha256};
use std::time::SystemTime;

impl GgufFile {
    /// Shows the file's header (all that it says of the model and its tokens, and the table of its tensors), and some bytes
    /// of every tensor, in the same order each time. Training a model on changes nearly all its weights, so a few of each
    /// tensor are enough. Takes milliseconds.
    pub fn identity(&self, show: &mut dyn FnMut(&[u8])) {
        self.headers().for_each(&mut *show);
        for index in 0..self.tensors().len() {
            let data = self.data(index).unwrap_or_default();
            let last = data.len().saturating_sub(SAMPLE);
            for start in [0, last / 2, last] {
                show(&data[start..data.len().min(start + SAMPLE)]);
            }
        }
        // A few bytes here and there bring half of the file along.
        self.forget_all();
    }
}

impl GgufFile {
    /// A digest of the file's identity, and of its length and time: weights that are packed from it are those of the file as
    /// it was, also where some bytes were changed in place that the identity does not show.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        self.identity(&mut |bytes| digest.update(bytes));
        for (len, modified) in self.changes() {
            let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
            digest.update((len as u64).to_le_bytes());
            digest.update(since.map_or(0, |since| since.as_nanos()).to_le_bytes());
        }
        digest.finalize().into()
    }
}

impl Model {
    /// Shows what tells the model's file from every other one, as [`GgufFile::identity`].
    pub fn identity(&self, show: &mut dyn FnMut(&[u8])) {
        self.file().identity(show);
    }
}

/// Bytes that are shown at three places of a tensor.
const SAMPLE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadOptions;

    /// All that is shown of a file.
    fn shown(bytes: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, bytes).unwrap();
        let model = Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap();
        let mut all = Vec::new();
        model.identity(&mut |bytes| all.extend_from_slice(bytes));
        all
    }

    #[test]
    fn a_file_with_other_weights_is_another_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden_llama.gguf");
        let bytes = std::fs::read(path).unwrap();
        let mut other = bytes.clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(shown(&bytes), shown(&bytes));
        assert_ne!(shown(&bytes), shown(&other));
    }

    /// Kilobytes of a mapped file that are in this process's memory.
    #[cfg(target_os = "linux")]
    fn in_memory(path: &std::path::Path) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
        let rss = own.skip(1).find_map(|line| line.strip_prefix("Rss:")).expect("it is mapped");
        rss.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_was_looked_at_does_not_stay_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("model.gguf");
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden_llama.gguf"), &path).unwrap();
        let file = GgufFile::open(&path).unwrap();
        assert!(in_memory(&path) > 0, "its header was read");
        let (mut looked, mut meanwhile) = (0, 0);
        file.identity(&mut |bytes| {
            looked += bytes.iter().filter(|byte| **byte != 0).count();
            meanwhile = in_memory(&path);
        });
        assert!(looked > 0 && meanwhile > 0);
        assert_eq!(in_memory(&path), 0);
    }
}
