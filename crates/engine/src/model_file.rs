//! Small files that an engine keeps of a model from one start to the next: their names, and how they are written.

use std::io;
use std::path::Path;

/// `text` as a part of a file's name on any system.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Writes `text` to `path`, whole or not at all; folders on the way are made.
pub(crate) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let file = tempfile::NamedTempFile::new_in(folder)?;
    std::fs::write(file.path(), text)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
