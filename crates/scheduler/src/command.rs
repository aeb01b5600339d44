//! What may be asked of the world.

use crate::kernel::Kernel;
use crate::reason::Reason;
use crate::residency::GraphLoad;
use duet_types::{FinishReason, Instant, LaneId, LaneSet, RequestId, Tokens};

/// Everything the scheduler can ask of the world.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {
    /// Put in place what KV there is of the request's tokens, kept, spilled or none, and answer `Event::Restored`.
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
    /// Compile and load a graph, and answer `GraphReady` or `GraphFailed`.
    Prepare(Graph),
    /// Free a graph that was prepared, or stop preparing it.
    Reclaim(GraphId),
    /// Load a block's graph, in the place of the other one or beside it, and answer `GraphLoaded` or `GraphLoadFailed`.
    /// What it takes over from goes when no kernel computes on it any more.
    LoadGraph(GraphLoad),
    /// Try whether the executor of a lost lane works again, and answer `LaneBack` or `LaneLost`.
    Probe(LaneId),
    /// Write KV to disk and free its pages, and answer `Spilled` or `SpillFailed`. The request is idle, or has ended; if a
    /// restoration under way has taken over what it left, the answer is `SpillFailed`.
    Spill(RequestId),
    /// Give up the KV that an ended request left, in memory or on disk, if a restoration has not taken it over.
    Forget(RequestId),
    /// Forget what was computed for an idle request; it begins again. The baseline `restart` asks for this, and others
    /// when its pages are wanted and the disk is full.
    Discard(RequestId),
    /// Give up what a lane's device has, in memory of its own, of a request's keys and values. Nothing is answered.
    DropCopy {
        /// Whose device.
        lane: LaneId,
        /// The request that was last computed there with them: the one before, of a turn that has not been yet.
        request: RequestId,
    },
    /// Answer `Timer` at this time. A later one does not cancel an earlier one.
    SetTimer {
        /// When.
        at: Instant,
        /// What for.
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

/// A graph, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GraphId(pub u64);

/// A static-shape graph for the whole prefill of one request, attention included. (Agent.xpu §4.3 ⑤)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Graph {
    /// Its number.
    pub id: GraphId,
    /// The request it is for.
    pub request: RequestId,
    /// The rows it takes.
    pub rows: Tokens,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum End {
    /// With an answer, whole or cut short.
    Finished(FinishReason),
    /// A kernel of it failed, or its prompt needs more memory than there is. Nothing of its KV is kept.
    Failed,
}
