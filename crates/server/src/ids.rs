//! Names for responses.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes ids that do not repeat and cannot be guessed from one another. Not fit for secrets.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    keys: (RandomState, RandomState),
    next: AtomicU64,
}

impl Ids {
    /// A new id: `prefix` and 32 hexadecimal digits.
    pub(crate) fn next(&self, prefix: &str) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{:016x}{:016x}", self.keys.0.hash_one(number), self.keys.1.hash_one(number))
    }
}

/// Seconds since 1970, as OpenAI's `created`.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
