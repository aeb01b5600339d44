//! The history store: finished answers are committed to a file, by user and task, and drafted from later.
//! (CoordGen §3.1, the task-relevant database)
//!
//! | what | file |
//! | --- | --- |
//! | whose, of which task and model | `key.rs` |
//! | what is kept of an answer | `interaction.rs`, in the numbers of `varint.rs` |
//! | how much is kept | `limits.rs` |
//! | the file: rows, transactions, what goes first | `file.rs`, `tables.rs`, `purge.rs`, `export.rs`; `aside.rs` what lies beside it |
//! | what is drafted from: automata that never change once others see them | `generations.rs`, `index.rs` |
//! | the one thread that touches the file and builds automata | `keeper.rs` |
//! | the handle that an engine holds | `store.rs` |
//!
//! Invariants:
//! - what one user's requests left is never given to another's, nor what one model said to another model;
//! - what [`HistoryStore::flush`] has waited for is in the file, whenever the process or the machine stops;
//! - file and memory stay within their [`Limits`], and what is oldest goes first;
//! - no request waits for the file: without room in the queue an interaction is dropped, and the log says so.

mod aside;
mod error;
mod export;
mod file;
mod generations;
mod index;
mod interaction;
mod keeper;
mod key;
mod limits;
mod purge;
mod store;
mod tables;
mod varint;

pub use error::HistoryError;
pub use file::{HistoryFile, TaskSummary};
pub use interaction::Interaction;
pub use key::{Filter, ModelFingerprint, TaskKey, TaskName, UserName};
pub use limits::Limits;
pub use store::{HistoryStats, HistoryStore};
