//! What is right: the reference that the kernels are held to.

use super::base_file::BaseFile;
use super::{Chunk, QualityError};
use duet_model::exact::{ExactReader, Residual};
use std::ops::Range;

/// Says of each row of a text what comes next.
pub trait Reference {
    /// The next chunk.
    ///
    /// # Errors
    /// If it cannot be read.
    fn begin(&mut self, chunk: &Chunk) -> Result<(), QualityError>;

    /// The logits of some scored rows, or the logarithms of chances, into `out`. Rows come in order.
    ///
    /// # Errors
    /// If they cannot be read.
    fn rows(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), QualityError>;

    /// Whether these are logarithms of chances already.
    fn is_normalised(&self) -> bool;
}

/// The weights of a file in plain floats, nothing rounded.
#[derive(Debug)]
pub struct ExactReference<'a> {
    reader: &'a ExactReader,
    read: Option<Residual>,
}

impl<'a> ExactReference<'a> {
    /// What this reader says.
    #[must_use]
    pub fn new(reader: &'a ExactReader) -> Self {
        Self { reader, read: None }
    }
}

impl Reference for ExactReference<'_> {
    fn begin(&mut self, chunk: &Chunk) -> Result<(), QualityError> {
        self.read = Some(self.reader.read(chunk)?);
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), QualityError> {
        let read = self.read.as_ref().expect("a chunk was begun");
        *out = self.reader.head(read, &rows.collect::<Vec<_>>())?;
        Ok(())
    }

    fn is_normalised(&self) -> bool {
        false
    }
}

impl Reference for BaseFile {
    fn begin(&mut self, _: &Chunk) -> Result<(), QualityError> {
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, out: &mut Vec<f32>) -> Result<(), QualityError> {
        out.clear();
        for _ in rows {
            self.read_row(out)?;
        }
        Ok(())
    }

    fn is_normalised(&self) -> bool {
        true
    }
}
