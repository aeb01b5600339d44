//! What tests need beside the repository, and what becomes of a test that lacks it.
//!
//! A test asks for what it needs and returns if that is not there:
//!
//! ```
//! let Some(model) = duet_testing::path(duet_testing::Need::Model) else { return };
//! ```
//!
//! The test then counts as passed, so a run has to be able to tell which of its tests did nothing. Two variables are for
//! that:
//! - `DUET_SKIPS=FILE`: every skip adds a line `test<TAB>need<TAB>reason` to the file.
//! - `DUET_REQUIRE=model,workloads,runtimes,real-models`: a test that lacks one of these fails instead.
//!
//! Invariant: what is there and does not work is a failure, never a reason to skip.

mod need;
mod processor;
mod profiles;
mod skips;

pub use need::Need;
pub use processor::multiplies_bytes;
pub use profiles::{attend_on_devices, prefer_devices, settle};

use skips::Skips;
use std::fmt::Display;
use std::path::PathBuf;

/// The file or folder that the environment names for a need; else the test is skipped.
#[track_caller]
#[must_use]
pub fn path(need: Need) -> Option<PathBuf> {
    let path = need.path();
    if path.is_none() {
        skip(need, format_args!("{} is not set", need.variable()));
    }
    path
}

/// What loading an accelerator's runtime gave. Where `DUET_RT` names one it has to load; elsewhere there may be none, and
/// the test is skipped.
///
/// # Panics
/// If a runtime that was named or required does not load.
#[track_caller]
#[must_use]
pub fn loaded<T, E: Display>(runtime: Result<T, E>) -> Option<T> {
    let error = match runtime {
        Ok(runtime) => return Some(runtime),
        Err(error) => error,
    };
    if let Some(folder) = Need::Runtimes.path() {
        panic!("{} names {}, whose runtime does not load: {error}", Need::Runtimes.variable(), folder.display());
    }
    skip(Need::Runtimes, error);
    None
}

/// Says that the test that calls this is skipped, and why: on stderr, and in the file that `DUET_SKIPS` names. The caller
/// then returns.
///
/// # Panics
/// If `DUET_REQUIRE` has the need, or names a need that does not exist; if the file cannot be written.
#[track_caller]
pub fn skip(need: Need, reason: impl Display) {
    if let Err(error) = Skips::of_this_process().skip(need, &skips::running_test(), &reason.to_string()) {
        panic!("{error}");
    }
}
