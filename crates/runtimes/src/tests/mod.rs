//! The cache and the faults, around a device in plain Rust.

mod cache;
mod fake;
mod faults;
