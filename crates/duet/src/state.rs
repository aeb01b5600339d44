//! The user's state directory: what should outlive a cache, and is not for other machines.

use etcetera::BaseStrategy;
use std::path::PathBuf;

/// Where `name` is kept; absent if this machine has no place for it. Creates nothing.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    let base = etcetera::choose_base_strategy().ok()?;
    Some(base.state_dir().unwrap_or_else(|| base.data_dir()).join("duet").join(name))
}
