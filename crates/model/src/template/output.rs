//! Where a rendering writes: text with an end.

use std::io;

/// Collects text up to [`BYTES_MAX`] and refuses the rest, which ends the rendering.
#[derive(Debug, Default)]
pub(super) struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

/// More than the longest context of any model holds, and little enough to keep in memory.
const BYTES_MAX: usize = 32 << 20;

impl Bounded {
    /// Whether something was refused.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// What was written. Templates write strings, so it is text.
    pub(super) fn into_text(self) -> String {
        String::from_utf8(self.bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > BYTES_MAX - self.bytes.len() {
            self.full = true;
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
