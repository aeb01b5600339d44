//! llama.cpp's reference files, as `llama-perplexity --kl-divergence-base` writes and reads them: the text's tokens, and of
//! every scored row the logarithms of all chances, in 16 bits each.
//!
//! `_logits_`, then the context, the vocabulary and the number of chunks (32 bits each, little endian as all of it), the
//! tokens of all chunks (32 bits each), then row by row: a step and the smallest logarithm (floats), and for each token
//! how many steps its logarithm is above that, padded to an even number. Chances below `e^-16` of the likeliest are not
//! told apart.

use duet_files::WholeFile;
use duet_types::TokenId;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"_logits_";
/// Smaller logits than the largest by more than this are taken for that.
const REACH: f32 = 16.0;
const STEPS: f32 = 65535.0;

/// A reference file that is read.
#[derive(Debug)]
pub struct BaseFile {
    from: BufReader<File>,
    path: PathBuf,
    /// What it says of itself.
    pub context: usize,
    /// Tokens that its model knows.
    pub vocabulary: usize,
    /// All chunks' tokens.
    pub tokens: Vec<TokenId>,
    row: Vec<u8>,
}

/// Why a reference file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum BaseFileError {
    /// It cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is something else, or was cut off.
    #[error("{path} is no reference file of llama-perplexity: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is of another model.
    #[error("{path} is of a model with {theirs} tokens, and this one has {ours}", path = path.display())]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// Its model's.
        theirs: usize,
        /// This model's.
        ours: usize,
    },
    /// It is of another text or of other chunks.
    #[error("{path} is of {what}", path = path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
}

impl BaseFile {
    /// Opens a file, for a model with a vocabulary of this size.
    ///
    /// # Errors
    /// [`BaseFileError`].
    pub fn open(path: &Path, vocabulary: usize) -> Result<Self, BaseFileError> {
        let read = |source| BaseFileError::Read { path: path.to_owned(), source };
        let damaged = |why: String| BaseFileError::Damaged { path: path.to_owned(), why };
        let file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let mut from = BufReader::with_capacity(1 << 20, file);
        let mut magic = [0; 8];
        from.read_exact(&mut magic).map_err(|_| damaged("it is too short".to_owned()))?;
        if magic != MAGIC {
            return Err(damaged("it begins otherwise".to_owned()));
        }
        let mut number = || {
            let mut bytes = [0; 4];
            from.read_exact(&mut bytes).map_err(|_| damaged("it is too short".to_owned()))?;
            usize::try_from(i32::from_le_bytes(bytes)).map_err(|_| damaged("a number is below zero".to_owned()))
        };
        let [context, theirs, chunks] = [number()?, number()?, number()?];
        if theirs != vocabulary {
            return Err(BaseFileError::Vocabulary { path: path.to_owned(), theirs, ours: vocabulary });
        }
        if context < 4 || chunks == 0 {
            return Err(damaged(format!("it has {chunks} chunks of {context} tokens")));
        }
        let expected = expected_length(context, vocabulary, chunks);
        if expected != Some(length) {
            let expected = expected.map_or("more than any file".to_owned(), |bytes| format!("{bytes} bytes"));
            return Err(damaged(format!("it has {length} bytes, and {chunks} chunks of {context} take {expected}")));
        }
        let mut bytes = vec![0; context * chunks * 4];
        from.read_exact(&mut bytes).map_err(read)?;
        let tokens: Vec<TokenId> =
            bytes.as_chunks().0.iter().map(|token| TokenId(u32::from_le_bytes(*token))).collect();
        Ok(Self { from, path: path.to_owned(), context, vocabulary, tokens, row: vec![0; row_bytes(vocabulary)] })
    }

    /// An error if the text of these tokens is not what it is of.
    ///
    /// # Errors
    /// [`BaseFileError::Other`].
    pub fn check_text(&self, text: &[TokenId]) -> Result<(), BaseFileError> {
        let same = self.tokens.iter().zip(text).take_while(|(a, b)| a == b).count();
        if same == self.tokens.len().min(text.len()) {
            return Ok(());
        }
        let what = format!("another text: token {same} is {} there and {} here", self.tokens[same], text[same]);
        Err(BaseFileError::Other { path: self.path.clone(), what })
    }

    /// The logarithms of the next row's chances.
    pub(super) fn read_row(&mut self, out: &mut Vec<f32>) -> Result<(), BaseFileError> {
        let path = &self.path;
        let read = |source| BaseFileError::Read { path: path.clone(), source };
        self.from.read_exact(&mut self.row).map_err(read)?;
        let (head, steps) = self.row.split_at(8);
        let float = |at: usize| f32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (step, least) = (float(0), float(4));
        if !step.is_finite() || !least.is_finite() {
            return Err(BaseFileError::Damaged { path: path.clone(), why: "a row is no numbers".to_owned() });
        }
        let steps = steps.as_chunks().0.iter().take(self.vocabulary).map(|steps| u16::from_le_bytes(*steps));
        out.extend(steps.map(|steps| step * f32::from(steps) + least));
        Ok(())
    }
}

fn row_bytes(vocabulary: usize) -> usize {
    2 * (2 * vocabulary.div_ceil(2) + 4)
}

fn expected_length(context: usize, vocabulary: usize, chunks: usize) -> Option<u64> {
    let rows = chunks.checked_mul(context - 1 - context / 2)?;
    let rows = rows.checked_mul(row_bytes(vocabulary))?;
    let tokens = chunks.checked_mul(context)?.checked_mul(4)?;
    u64::try_from(rows.checked_add(tokens)?.checked_add(20)?).ok()
}

/// A reference file that is written, whole or not at all.
#[derive(Debug)]
pub struct BaseWriter {
    to: BufWriter<WholeFile>,
    row: Vec<u8>,
}

impl BaseWriter {
    /// Begins a file for chunks of `context` of these `tokens`.
    ///
    /// # Errors
    /// As the file system says.
    pub fn begin(path: &Path, context: usize, vocabulary: usize, tokens: &[TokenId]) -> io::Result<Self> {
        let mut to = BufWriter::with_capacity(1 << 20, WholeFile::begin(path)?);
        to.write_all(&MAGIC)?;
        for number in [context, vocabulary, tokens.len() / context] {
            to.write_all(&i32::try_from(number).map_err(io::Error::other)?.to_le_bytes())?;
        }
        tokens.iter().try_for_each(|token| to.write_all(&token.0.to_le_bytes()))?;
        Ok(Self { to, row: Vec::with_capacity(row_bytes(vocabulary)) })
    }

    /// Adds a row of logits, or of logarithms of chances.
    pub(super) fn row(&mut self, logits: &[f32]) -> io::Result<()> {
        let largest = logits.iter().fold(f32::NEG_INFINITY, |largest, logit| largest.max(*logit));
        let least = logits.iter().fold(f32::INFINITY, |least, logit| least.min(*logit)).max(largest - REACH);
        let step = (largest - least) / STEPS;
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        let least_of_chances = (f64::from(least) - super::divergence::log_total(logits)) as f32;
        self.row.clear();
        self.row.extend(step.to_le_bytes());
        self.row.extend(least_of_chances.to_le_bytes());
        let steps = |logit: &f32| ((logit - least).max(0.0) * inverse).round_ties_even().min(STEPS) as u16;
        self.row.extend(logits.iter().flat_map(|logit| steps(logit).to_le_bytes()));
        self.row.resize(row_bytes(logits.len()), 0);
        self.to.write_all(&self.row)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// As the file system says.
    pub fn commit(self) -> io::Result<()> {
        self.to.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(count: u32) -> Vec<TokenId> {
        (0..count).map(TokenId).collect()
    }

    /// Two chunks of four: one row is scored of each.
    fn written(folder: &Path) -> PathBuf {
        let path = folder.join("base");
        let mut file = BaseWriter::begin(&path, 4, 3, &tokens(8)).unwrap();
        file.row(&[0.5_f32.ln(), 0.25_f32.ln(), 0.25_f32.ln()]).unwrap();
        file.row(&[3.0, 3.0, -100.0]).unwrap();
        file.commit().unwrap();
        path
    }

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = BaseFile::open(&written(folder.path()), 3).unwrap();
        assert_eq!((file.context, file.tokens.len()), (4, 8));
        let mut rows = Vec::new();
        file.read_row(&mut rows).unwrap();
        file.read_row(&mut rows).unwrap();
        let expected = [0.5, 0.25, 0.25, 0.5, 0.5, 0.5 * (-16.0_f32).exp()];
        assert!(rows.iter().zip(expected).all(|(a, b)| (a.exp() - b).abs() < 1e-4), "{rows:?}");
        assert!(file.check_text(&tokens(6)).is_ok() && file.check_text(&tokens(8)).is_ok());
        let other = file.check_text(&[TokenId(0), TokenId(7)]).unwrap_err().to_string();
        assert!(other.contains("token 1 is 1 there and 7 here"), "{other}");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let whole = std::fs::read(&path).unwrap();
        assert!(matches!(BaseFile::open(&path, 4), Err(BaseFileError::Vocabulary { theirs: 3, ours: 4, .. })));
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(matches!(BaseFile::open(&path, 3), Err(BaseFileError::Damaged { .. })), "{cut}");
        }
        for byte in 0..20 {
            let mut bytes = whole.clone();
            bytes[byte] ^= 0x80;
            std::fs::write(&path, &bytes).unwrap();
            assert!(BaseFile::open(&path, 3).is_err(), "{byte}");
        }
        assert!(matches!(BaseFile::open(&folder.path().join("none"), 3), Err(BaseFileError::Read { .. })));
    }
}
