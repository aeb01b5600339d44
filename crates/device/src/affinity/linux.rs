//! Linux: `sched_getaffinity`, `sched_setaffinity`, and files under `/sys`.

use crate::topology::{Core, CoreId, linux::cores_of};
use std::path::Path;

/// The cores; nothing if the system does not tell which threads may run where.
pub(super) fn cores() -> Vec<Core> {
    cores_of(&allowed(), Path::new("/sys/devices"))
}

/// How many threads can run at once: the quota of a cgroup, which has no place.
pub(super) fn quota(parallelism: usize) -> usize {
    parallelism
}

/// Binds the calling thread to a core. May do nothing: a refusal only costs speed.
pub(crate) fn keep_on(core: CoreId) {
    if core.0 < libc::CPU_SETSIZE as usize {
        // SAFETY: `cpu_set_t` is plain bits, for which zero is the empty set. The index is below CPU_SETSIZE, as
        // CPU_SET requires. The set outlives the call, and its true size is passed. Thread 0 is the calling one.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core.0, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

/// The hardware threads that the calling thread may run on.
fn allowed() -> Vec<CoreId> {
    // SAFETY: as in `keep_on`; the kernel writes at most the size passed, and indices stay below CPU_SETSIZE.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &set)).map(CoreId).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::available_cores;

    #[test]
    fn a_thread_that_is_kept_on_a_core_may_use_that_only() {
        let core = available_cores().last().unwrap().id;
        let allowed = std::thread::spawn(move || {
            keep_on(core);
            allowed()
        });
        assert_eq!(allowed.join().unwrap(), [core]);
    }
}
