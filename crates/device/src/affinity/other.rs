//! Systems that are not asked.

use crate::topology::{Core, CoreId};

/// Nothing is known of cores.
pub(super) fn cores() -> Vec<Core> {
    Vec::new()
}

/// As many threads as can run at once.
pub(super) fn quota(parallelism: usize) -> usize {
    parallelism
}

/// Does nothing.
pub(crate) fn keep_on(_: CoreId) {}
