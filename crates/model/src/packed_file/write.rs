//! Writes a file of packed weights.

use super::{ALIGNMENT, Digest, Entry, HEADER, MAGIC, SectionEntry, Table, VERSION, name_of};
use crc32fast::Hasher;
use duet_kernels::packed::{PackedMatrix, PackedPart};
use std::io::{self, Write};

/// Writes the matrices, each under its name.
///
/// # Errors
/// As `out` says.
pub(crate) fn write(out: &mut dyn Write, digest: &Digest, matrices: &[(String, &PackedMatrix)]) -> io::Result<()> {
    // Where panels begin follows from the table's length, and that from how many digits its numbers have. With the longest
    // ones it is a bound; what the table leaves of it is padding.
    let crcs: Vec<Vec<u32>> = matrices.iter().map(|(_, matrix)| matrix.parts().map(crc).collect()).collect();
    let guess = table(matrices, &crcs, usize::MAX / 2)?.len();
    let panels = (HEADER + guess).next_multiple_of(ALIGNMENT);
    let table = table(matrices, &crcs, panels)?;
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(&crc32fast::hash(&table).to_le_bytes())?;
    out.write_all(&(table.len() as u64).to_le_bytes())?;
    out.write_all(digest)?;
    out.write_all(&table)?;
    out.write_all(&vec![0; panels - HEADER - table.len()])?;
    for part in matrices.iter().flat_map(|(_, matrix)| matrix.parts()) {
        for bytes in [part.quants, part.scales] {
            out.write_all(bytes)?;
            out.write_all(&[0; ALIGNMENT][..padding(bytes.len())])?;
        }
    }
    Ok(())
}

/// The table of matrices that begin at `panels`.
fn table(matrices: &[(String, &PackedMatrix)], crcs: &[Vec<u32>], panels: usize) -> io::Result<Vec<u8>> {
    let mut at = panels;
    let mut place = |len: usize| {
        let begins = at;
        at += len + padding(len);
        begins
    };
    let matrices = matrices.iter().zip(crcs).map(|((name, matrix), crcs)| {
        let sections = matrix.parts().zip(crcs).map(|(part, &crc)| SectionEntry {
            form: name_of(part.form),
            outputs: part.outputs,
            quants: place(part.quants.len()),
            scales: place(part.scales.len()),
            crc,
        });
        Entry { name: name.clone(), inputs: matrix.inputs(), sections: sections.collect() }
    });
    Ok(serde_json::to_vec(&Table { matrices: matrices.collect() })?)
}

pub(super) fn padding(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT) - len
}

pub(super) fn crc(part: PackedPart<'_>) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(part.quants);
    hasher.update(part.scales);
    hasher.finalize()
}
