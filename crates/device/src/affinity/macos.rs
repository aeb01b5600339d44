//! macOS: `sysctlbyname`, and classes of service instead of cores.

use crate::topology::{
    Core, CoreId,
    macos::{Told, cores_of, levels},
};
use std::ffi::{CStr, CString};

/// The cores that threads are kept on; nothing if the system does not tell.
pub(super) fn cores() -> Vec<Core> {
    cores_of(&levels(&System))
}

/// There is no quota that would not be in the number of cores; `parallelism` counts hardware threads.
pub(super) fn quota(parallelism: usize) -> usize {
    parallelism
}

/// Asks for a fast core for the calling thread, whichever: work that a person waits for. May do nothing: a refusal only costs
/// speed.
pub(crate) fn keep_on(_: CoreId) {
    // SAFETY: the call takes a class and a priority within it, and concerns the calling thread alone.
    unsafe { libc::pthread_set_qos_class_self_np(libc::qos_class_t::QOS_CLASS_USER_INITIATED, 0) };
}

/// The system's own answers.
struct System;

impl Told for System {
    fn number(&self, name: &str) -> Option<usize> {
        let mut bytes = [0; 8];
        // Numbers have four bytes or eight, the low ones first; none of these is negative.
        let known = matches!(told(name, &mut bytes)?, 4 | 8);
        known.then(|| usize::try_from(u64::from_le_bytes(bytes)).ok()).flatten()
    }

    fn text(&self, name: &str) -> Option<String> {
        let mut bytes = [0; 64];
        told(name, &mut bytes)?;
        Some(CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned())
    }
}

/// Writes what the system has under a name, and says how many bytes that is; nothing if it has none, or more than there is
/// room for.
fn told(name: &str, to: &mut [u8]) -> Option<usize> {
    let name = CString::new(name).ok()?;
    let mut length = to.len();
    // SAFETY: the name ends in zero; the system writes at most `length` bytes, which there are, and how many it wrote.
    // Nothing is set.
    let refused =
        unsafe { libc::sysctlbyname(name.as_ptr(), to.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0) };
    (refused == 0).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_its_cores() {
        assert!(!cores().is_empty());
        assert_eq!(System.number("hw.no_such_name"), None);
    }
}
