//! How full disks are.

use duet_types::Bytes;
use std::path::Path;

/// Bytes of the disk that this user may still write; none if the system does not tell.
pub(crate) fn free_disk(folder: &Path) -> Option<Bytes> {
    #[cfg(unix)]
    {
        let disk = rustix::fs::statvfs(folder).ok()?;
        Some(Bytes(disk.f_bavail.saturating_mul(disk.f_frsize)))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}
