//! What may be asked of the world.

use crate::kernel::Kernel;
use duet_types::{FinishReason, LaneSet, RequestId};
use std::fmt;

/// Everything the scheduler can ask of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Put in place what KV is kept of the request's prefix, and answer `Event::Restored`.
    Restore(RequestId),
    /// Run `kernel` on the team of `lanes` and answer `KernelDone` or `KernelFailed`.
    Launch {
        /// The team; all its lanes are idle.
        lanes: LaneSet,
        /// The work.
        kernel: Kernel,
        /// Why this, now.
        reason: Reason,
    },
    /// The request is over: nothing will be launched for it, its buffers may go, its KV may be kept for its flow.
    Release {
        /// Which.
        request: RequestId,
        /// How it ended.
        end: End,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With an answer, whole or cut short.
    Finished(FinishReason),
    /// A kernel of it failed.
    Failed,
}

/// Why a kernel was launched. Timelines show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the oldest request, and its turn has come.
    FirstCome,
    /// Its request has begun, and runs to completion.
    RunsToCompletion,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstCome => "first come",
            Self::RunsToCompletion => "runs to completion",
        })
    }
}
