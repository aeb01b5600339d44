//! What can happen: everything that can make the scheduler act.

use crate::command::GraphId;
use crate::kernel::{HeadRows, PassId};
use crate::offer::Offer;
use duet_types::{Class, FinishReason, FlowId, KernelId, LaneId, Nanos, Net, RequestId, Tokens};

/// One generation as the scheduler sees it: sizes, no contents. How long its answer will be is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Request {
    /// Its id, new to the scheduler.
    pub id: RequestId,
    /// The agent's sequence of requests that it belongs to.
    pub flow: FlowId,
    /// Who waits for it.
    pub class: Class,
    /// Length of its prompt, at least one.
    pub prompt: Tokens,
    /// Kept KV that its prompt begins with, as far as is known when it arrives.
    pub prefix: Option<Prefix>,
    /// Which rows of its prompt go through the head.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "HeadRows::is_last"))]
    pub head: HeadRows,
    /// Which model it goes through.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Net::is_decoder"))]
    pub net: Net,
}

/// Kept KV that a prompt begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Prefix {
    /// The ended request that left it.
    pub of: RequestId,
    /// Leading tokens that are the same.
    pub tokens: Tokens,
}

/// Everything that can make the scheduler act. A new cause of work is a new variant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// A request arrived.
    Submitted(Request),
    /// The KV that there was for a request is in place, in answer to `Command::Restore`.
    Restored {
        /// Whose.
        request: RequestId,
        /// Leading tokens that need not be computed; less than it knows, since the last row's result is needed.
        cached: Tokens,
        /// Where they came from; absent for its own, spilled KV, and where there was nothing.
        source: Option<Source>,
    },
    /// A launched kernel came to its end.
    KernelDone {
        /// Which.
        kernel: KernelId,
        /// What came of it.
        outcome: Outcome,
    },
    /// What a pass waits for since its last kernel ended with [`Outcome::Waits`] is there. Allowed at any time, also after
    /// the end of the pass.
    DataReady {
        /// Which.
        pass: PassId,
    },
    /// A launched kernel could not be run to its end. Its pass is undone: its requests are where they were before it.
    KernelFailed {
        /// Which.
        kernel: KernelId,
    },
    /// A graph is compiled and loaded, in answer to `Command::Prepare`.
    GraphReady {
        /// Which.
        graph: GraphId,
    },
    /// A graph could not be compiled.
    GraphFailed {
        /// Which.
        graph: GraphId,
    },
    /// A block's graph is there, in answer to `Command::LoadGraph`.
    GraphLoaded {
        /// The block.
        block: usize,
    },
    /// It could not be loaded.
    GraphLoadFailed {
        /// The block.
        block: usize,
    },
    /// The executor of a lane failed, hangs, or is gone; so is a kernel that it has not answered for. Also the answer to
    /// a `Command::Probe` that found it no better. There is always a lane left that takes any shape.
    LaneLost {
        /// Which.
        lane: LaneId,
    },
    /// Something is wrong with the lane, and a kernel on it has not ended: it takes much longer than predicted, or its
    /// executor has failed and others compute the rest of it. Nothing else goes there; the kernel is still answered.
    LaneSlow {
        /// Which.
        lane: LaneId,
    },
    /// The lane can be used again: its slow kernel has ended, or a `Command::Probe` found it well.
    LaneBack {
        /// Which.
        lane: LaneId,
    },
    /// KV is on disk and its pages are free, in answer to `Command::Spill`.
    Spilled {
        /// Whose.
        request: RequestId,
    },
    /// KV could not be written, and is where it was.
    SpillFailed {
        /// Whose.
        request: RequestId,
    },
    /// The world gave up kept KV by itself: other KV holds the same tokens, or its file is gone.
    Dropped {
        /// The ended request that had left it.
        request: RequestId,
    },
    /// Nobody wants the request any more. Allowed at any time, also after its end.
    Cancelled(RequestId),
    /// The time of a `Command::SetTimer` has come.
    Timer,
}

/// Where KV that was put in place came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Source {
    /// All that this ended request had left: it is the new request's now.
    TakenOver(RequestId),
    /// The beginning of what this ended request had left; it is still kept.
    Forked(RequestId),
}

/// What came of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// The rows went as far as the kernel was to bring them.
    Progressed,
    /// The rows came to a node for which data has to be read: `Event::DataReady` says when it is there. Only of a kernel
    /// that was to give its lanes back.
    Waits {
        /// The node: those before it are complete, and some of its work may be done.
        node: usize,
        /// How long it will probably take.
        about: Nanos,
    },
    /// The pass is complete: what came of each member that was to yield a token, in the order of the members.
    Tokens(Vec<Generated>),
}

/// New tokens of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Generated {
    /// Whose.
    pub request: RequestId,
    /// How many: one, and one for each row of its draft that was accepted.
    #[cfg_attr(feature = "serde", serde(default = "one_token"))]
    pub tokens: Tokens,
    /// Why there will be no more, if there will not.
    pub finished: Option<FinishReason>,
    /// What may come next.
    #[cfg_attr(feature = "serde", serde(default))]
    pub offer: Offer,
    /// What a draft model took for it, at the kernel's end: no part of what the kernel was predicted to take.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_no_time"))]
    pub drafting: Nanos,
    /// How long it took to make the masks of what its form lets come: on a thread of their own, while the pass ran.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_no_time"))]
    pub masks: Nanos,
    /// How much later the kernel ended because they were waited for: no part of what it was predicted to take either.
    /// Members that wait at once have it once together.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_no_time"))]
    pub waited: Nanos,
}

impl Generated {
    /// One token, and nothing drafted.
    #[must_use]
    pub fn one(request: RequestId, finished: Option<FinishReason>) -> Self {
        let [drafting, masks, waited] = [Nanos::ZERO; 3];
        Self { request, tokens: Tokens(1), finished, offer: Offer::NONE, drafting, masks, waited }
    }
}

impl Outcome {
    /// What the kernel's time has that was not predicted: what draft models took, and what masks were waited for.
    pub(crate) fn unpredicted(&self) -> Nanos {
        match self {
            Self::Progressed | Self::Waits { .. } => Nanos::ZERO,
            Self::Tokens(tokens) => {
                Nanos(tokens.iter().map(|generated| generated.drafting.0 + generated.waited.0).sum())
            }
        }
    }
}

#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_no_time(time: &Nanos) -> bool {
    *time == Nanos::ZERO
}

#[cfg(feature = "serde")]
fn one_token() -> Tokens {
    Tokens(1)
}
