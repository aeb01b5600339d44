//! Which cores this process may use, and binding a thread to one.
//!
//! Only Linux can be asked and told. Elsewhere cores are numbered from 0 and binding does nothing: the kernels are
//! correct on any core, only their caches are colder.

use crate::topology::{Core, CoreId, cores_of};
use std::path::Path;

/// The physical cores this process may compute on, the fastest first; never empty. A CPU quota (cgroup) makes the list
/// shorter.
#[must_use]
pub fn available_cores() -> Vec<Core> {
    let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
    let mut allowed = allowed_cores().unwrap_or_else(|| (0..parallelism).map(CoreId).collect());
    if allowed.is_empty() {
        allowed.push(CoreId(0));
    }
    let mut cores = cores_of(&allowed, Path::new("/sys/devices"));
    cores.truncate(parallelism);
    cores
}

/// Binds the calling thread to `core`. May do nothing: a refusal only costs speed.
pub(crate) fn pin_to(core: CoreId) {
    #[cfg(target_os = "linux")]
    if core.0 < libc::CPU_SETSIZE as usize {
        // SAFETY: `cpu_set_t` is plain bits, for which zero is the empty set. The index is below CPU_SETSIZE, as
        // CPU_SET requires. The set outlives the call, and its true size is passed. Thread 0 is the calling one.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core.0, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}

#[cfg(target_os = "linux")]
fn allowed_cores() -> Option<Vec<CoreId>> {
    // SAFETY: as in `pin_to`; the kernel writes at most the size passed, and indices stay below CPU_SETSIZE.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return None;
        }
        Some((0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &set)).map(CoreId).collect())
    }
}

#[cfg(not(target_os = "linux"))]
fn allowed_cores() -> Option<Vec<CoreId>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_core_is_available() {
        assert!(!available_cores().is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pinned_thread_may_use_its_core_only() {
        let core = available_cores().last().unwrap().id;
        let allowed = std::thread::spawn(move || {
            pin_to(core);
            allowed_cores()
        });
        assert_eq!(allowed.join().unwrap(), Some(vec![core]));
    }
}
