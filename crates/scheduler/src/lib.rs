//! The scheduler: which kernel of which request runs next, on which lanes, and why.
//!
//! It is sans-IO: [`Event`]s come in with the time they happened, [`Command`]s go out. There is no clock, thread,
//! lock, tensor or token in here, and no random choice: the same events give the same commands. The engine drives it
//! with real lanes; anything else that implements the driver's `World` may drive the same object.
//!
//! Invariants:
//! - a lane runs at most one kernel at a time, and a request has at most one kernel under way;
//! - a request that was submitted is released exactly once, and nothing is launched for it afterwards;
//! - the scheduler counts tokens but never sees one, and no view of it knows how long an answer will be.
//!
//! (Agent.xpu §4.1: request manager and online scheduler)

mod command;
mod config;
mod event;
mod kernel;
pub mod policy;
mod request_table;
mod scheduler;

pub use command::{Command, End, Reason};
pub use config::SchedulerConfig;
pub use event::{Event, Outcome, Request};
pub use kernel::{Completes, Kernel};
pub use request_table::{Lifecycle, PassUnderWay, Progress};
pub use scheduler::Scheduler;
