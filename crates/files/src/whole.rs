//! Names of small files, and how they are written.

use std::io::{self, Write};
use std::path::Path;

/// `text` as a part of a file's name on any system.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Writes `text` to `path`, whole or not at all; folders on the way are made.
///
/// # Errors
/// As the file system says.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
