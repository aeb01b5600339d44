//! Small files that are kept from one start to the next: what was measured or learned, to be found again.
//!
//! `whole` writes a file whole or not at all, also those that somebody asked for; `sealed` one that is read only if it is
//! the one that was written; `bounded` removes those that were not used for longest.
//!
//! Invariant: nothing about such a file is an error for who reads it. What is not there, damaged or of another kind is as
//! if it had never been written, and is found out again.

pub mod bounded;
pub mod sealed;
mod whole;

pub use whole::{WholeFile, plain, write_whole};
