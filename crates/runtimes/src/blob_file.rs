//! One compiled graph in a file: a head that says what follows, the key, the bytes.
//!
//! ```text
//! "duetblob"  length of the key (u32)  length of the bytes (u64)  CRC-32 of key and bytes (u32)  key  bytes
//! ```
//!
//! Numbers are little-endian. What is read is the whole file or nothing: any other length, key or checksum is as if
//! there were no file. The checksum is for damage, not for malice: whoever can write to the folder can do worse.

use crate::blob_key::BlobKey;
use std::fs::File;
use std::io::{Read, Result, Write};
use std::path::Path;
use std::time::SystemTime;

/// Writes a graph.
pub(crate) fn write(file: &mut impl Write, key: &BlobKey, blob: &[u8]) -> Result<()> {
    let key = key.text().as_bytes();
    let length = u32::try_from(key.len()).map_err(std::io::Error::other)?;
    file.write_all(MAGIC)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&(blob.len() as u64).to_le_bytes())?;
    file.write_all(&checksum(key, blob).to_le_bytes())?;
    file.write_all(key)?;
    file.write_all(blob)
}

/// Reads the graph of `key`, and notes in the file's time that it was used; none if there is none, or a damaged one.
pub(crate) fn read(path: &Path, key: &BlobKey) -> Option<Vec<u8>> {
    let mut file = File::options().read(true).write(true).open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut head = [0; HEAD];
    file.read_exact(&mut head).ok()?;
    let key = key.text().as_bytes();
    let expected = Head::of(&head)?;
    let whole = (HEAD as u64).checked_add(u64::from(expected.key))?.checked_add(expected.blob)?;
    if whole != length || expected.key as usize != key.len() {
        return None;
    }
    let mut found = vec![0; key.len()];
    file.read_exact(&mut found).ok()?;
    // Not more than the file has.
    let mut blob = vec![0; usize::try_from(expected.blob).ok()?];
    file.read_exact(&mut blob).ok()?;
    if found != key || checksum(key, &blob) != expected.checksum {
        return None;
    }
    // If the time cannot be set, the graph only goes earlier than it should.
    let _ = file.set_modified(SystemTime::now());
    Some(blob)
}

struct Head {
    key: u32,
    blob: u64,
    checksum: u32,
}

impl Head {
    fn of(head: &[u8; HEAD]) -> Option<Self> {
        let rest = head.strip_prefix(MAGIC)?;
        let (key, rest) = rest.split_first_chunk()?;
        let (blob, rest) = rest.split_first_chunk()?;
        let (checksum, _) = rest.split_first_chunk()?;
        Some(Self {
            key: u32::from_le_bytes(*key),
            blob: u64::from_le_bytes(*blob),
            checksum: u32::from_le_bytes(*checksum),
        })
    }
}

const MAGIC: &[u8; 8] = b"duetblob";
const HEAD: usize = MAGIC.len() + 4 + 8 + 4;

fn checksum(key: &[u8], blob: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(blob);
    hasher.finalize()
}
