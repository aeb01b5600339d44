//! Writes a file of packed weights matrix by matrix, so that none of them need be in memory when the next one comes.
//!
//! The table comes last and lies first: room is left for it, which is padding where it turns out shorter.

use super::{ALIGNMENT, Digest, Entry, HEADER, MAGIC, SectionEntry, Table, VERSION, name_of};
use crc32fast::Hasher;
use duet_kernels::packed::{PackedMatrix, PackedPart};
use std::io::{self, Seek, SeekFrom, Write};

/// A file that is being written.
pub(crate) struct StreamWriter<W> {
    out: W,
    digest: Digest,
    /// Where panels begin.
    panels: usize,
    at: usize,
    matrices: Vec<Entry>,
}

/// More than a matrix takes in the table: its name, and its sections, of which there are three at most.
const ENTRY_MAX: usize = 640;

impl<W: Write + Seek> StreamWriter<W> {
    /// For at most so many matrices.
    pub(crate) fn begin(mut out: W, digest: Digest, matrices: usize) -> io::Result<Self> {
        let panels = (HEADER + (matrices + 1) * ENTRY_MAX).next_multiple_of(ALIGNMENT);
        out.seek(SeekFrom::Start(panels as u64))?;
        Ok(Self { out, digest, panels, at: panels, matrices: Vec::with_capacity(matrices) })
    }

    /// The next matrix.
    pub(crate) fn matrix(&mut self, name: String, matrix: &PackedMatrix) -> io::Result<()> {
        let mut sections = Vec::new();
        for part in matrix.parts() {
            let [quants, scales] = [self.bytes(part.quants)?, self.bytes(part.scales)?];
            let (form, outputs, crc) = (name_of(part.form), part.outputs, crc(part));
            sections.push(SectionEntry { form, outputs, quants, scales, crc });
        }
        self.matrices.push(Entry { name, inputs: matrix.inputs(), sections });
        Ok(())
    }

    /// Writes the table, which makes a file of it.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let table = serde_json::to_vec(&Table { matrices: self.matrices })?;
        let room = self.panels - HEADER;
        if table.len() > room {
            return Err(io::Error::other(format!("its table takes {} bytes, and {room} were left", table.len())));
        }
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&MAGIC)?;
        self.out.write_all(&VERSION.to_le_bytes())?;
        self.out.write_all(&crc32fast::hash(&table).to_le_bytes())?;
        self.out.write_all(&(table.len() as u64).to_le_bytes())?;
        self.out.write_all(&self.digest)?;
        self.out.write_all(&table)?;
        self.out.write_all(&vec![0; room - table.len()])?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Where they begin.
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let begins = self.at;
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; ALIGNMENT][..padding(bytes.len())])?;
        self.at += bytes.len() + padding(bytes.len());
        Ok(begins)
    }
}

fn padding(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT) - len
}

fn crc(part: PackedPart<'_>) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(part.quants);
    hasher.update(part.scales);
    hasher.finalize()
}
