//! What can happen: everything that can make the scheduler act.

use duet_types::{Class, FinishReason, KernelId, RequestId, Tokens};

/// One generation as the scheduler sees it: sizes, no contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id, new to the scheduler.
    pub id: RequestId,
    /// Who waits for it.
    pub class: Class,
    /// Length of its prompt, at least one.
    pub prompt: Tokens,
}

/// Everything that can make the scheduler act. A new cause of work is a new variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request arrived.
    Submitted(Request),
    /// The KV that was kept for a request's prefix is in place, in answer to `Command::Restore`.
    Restored {
        /// Whose.
        request: RequestId,
        /// Leading prompt tokens that need not be computed; less than the prompt, since the last row's result is needed.
        cached: Tokens,
    },
    /// A launched kernel came to its end.
    KernelDone {
        /// Which.
        kernel: KernelId,
        /// What came of it.
        outcome: Outcome,
    },
    /// A launched kernel could not be run to its end. Its request fails; its lanes are free.
    KernelFailed {
        /// Which.
        kernel: KernelId,
    },
    /// Nobody wants the request any more. Allowed at any time, also after its end.
    Cancelled(RequestId),
}

/// What came of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rows went as far as the kernel was to bring them.
    Progressed,
    /// The pass ended in a new token of the request: the answer to `Completes::Token`.
    Token {
        /// Why it was the last one, if it was.
        finished: Option<FinishReason>,
    },
}
