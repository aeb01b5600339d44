//! Which cores this process may use, and keeping a thread on one: what each system is asked and told.
//!
//! [`crate::topology`] makes cores of the answers. A system that is not known has as many equal cores as threads can run at
//! once, and threads go where it likes: the kernels are correct on any core, only their caches are colder.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(not(any(target_os = "linux", target_os = "macos", windows)), path = "other.rs")]
mod system;

use crate::topology::{Core, CoreId};

pub(crate) use system::keep_on;

/// The physical cores this process may compute on, the fastest first; never empty. A CPU quota (cgroup) makes the list
/// shorter.
#[must_use]
pub fn available_cores() -> Vec<Core> {
    let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
    let mut cores = system::cores();
    if cores.is_empty() {
        cores = (0..parallelism).map(CoreId).map(Core::fast).collect();
    }
    cores.truncate(system::quota(parallelism));
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_core_is_available() {
        assert!(!available_cores().is_empty());
    }
}
