//! Writes a file of packed weights, some matrices at a time and by several threads, so that none of them need be in memory when
//! the next one comes.
//!
//! The table is written last and lies first: room is left for it, which is padding where it turns out shorter.

use super::{ALIGNMENT, Digest, Entry, HEADER, MAGIC, SectionEntry, Table, VERSION, name_of};
use crc32fast::Hasher;
use duet_kernels::packed::{PackedMatrix, PackedPart};
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

/// A file that is being written.
pub(crate) struct StreamWriter<'a> {
    out: &'a File,
    digest: Digest,
    /// Where panels begin.
    panels: usize,
    laid: Mutex<Laid>,
}

/// What has its place in the file.
struct Laid {
    /// Where the next matrices come.
    at: usize,
    matrices: Vec<Entry>,
}

/// More than a matrix takes in the table: its name, and its sections, of which there are three at most.
const ENTRY_MAX: usize = 640;

impl<'a> StreamWriter<'a> {
    /// For at most so many matrices, in an empty file.
    pub(crate) fn begin(out: &'a File, digest: Digest, matrices: usize) -> Self {
        let panels = (HEADER + (matrices + 1) * ENTRY_MAX).next_multiple_of(ALIGNMENT);
        Self { out, digest, panels, laid: Mutex::new(Laid { at: panels, matrices: Vec::with_capacity(matrices) }) }
    }

    /// The next matrices, which lie one behind the other.
    pub(crate) fn matrices(&self, matrices: &[(String, &PackedMatrix)]) -> io::Result<()> {
        let parts = matrices.iter().flat_map(|(_, matrix)| matrix.parts());
        let len: usize = parts.map(|part| padded(part.quants.len()) + padded(part.scales.len())).sum();
        let mut at = {
            let mut laid = self.laid();
            laid.at += len;
            laid.at - len
        };
        let mut entries = Vec::with_capacity(matrices.len());
        for (name, matrix) in matrices {
            let mut sections = Vec::new();
            for part in matrix.parts() {
                let [quants, scales] = [at, at + padded(part.quants.len())];
                write_at(self.out, part.quants, quants)?;
                write_at(self.out, part.scales, scales)?;
                let (form, outputs, crc) = (name_of(part.form), part.outputs, crc(part));
                sections.push(SectionEntry { form, outputs, quants, scales, crc });
                at = scales + padded(part.scales.len());
            }
            entries.push(Entry { name: name.clone(), inputs: matrix.inputs(), sections });
        }
        self.laid().matrices.extend(entries);
        Ok(())
    }

    /// Writes the table, which makes a file of it.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Laid { at, mut matrices } = self.laid.into_inner().unwrap_or_else(PoisonError::into_inner);
        // As they lie, whoever was done first.
        matrices.sort_by_key(|entry| entry.sections.first().map(|section| section.quants));
        let table = serde_json::to_vec(&Table { matrices })?;
        let room = self.panels - HEADER;
        if table.len() > room {
            return Err(io::Error::other(format!("its table takes {} bytes, and {room} were left", table.len())));
        }
        let mut head = Vec::with_capacity(HEADER + table.len());
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend(crc32fast::hash(&table).to_le_bytes());
        head.extend((table.len() as u64).to_le_bytes());
        head.extend(self.digest);
        head.extend(table);
        // Zeros where nothing is written.
        self.out.set_len(at as u64)?;
        write_at(self.out, &head, 0)
    }

    fn laid(&self) -> std::sync::MutexGuard<'_, Laid> {
        self.laid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: usize) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at as u64)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], at: usize) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match std::os::windows::fs::FileExt::seek_write(file, &bytes[written..], (at + written) as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            more => written += more,
        }
    }
    Ok(())
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT)
}

fn crc(part: PackedPart<'_>) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(part.quants);
    hasher.update(part.scales);
    hasher.finalize()
}
