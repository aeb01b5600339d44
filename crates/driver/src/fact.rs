//! Facts: what events and commands come to, in words that people ask in.

use duet_scheduler::{End, GraphLoad, Kernel, Member, Reason};
use duet_types::{Class, FlowId, Instant, LaneId, LaneSet, Nanos, RequestId, Stage, Tokens};

/// Something that people ask about.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A request came.
    Arrived {
        /// The request that came.
        subject: Subject,
        /// Length of its prompt.
        prompt: Tokens,
    },
    /// KV was put in place for a request.
    Restored {
        /// The request that goes on from it.
        subject: Subject,
        /// Positions that need not be computed.
        cached: Tokens,
        /// Where they came from.
        from: Origin,
    },
    /// The first kernel of a request was launched.
    Began {
        /// The request that begins.
        subject: Subject,
        /// Since it came.
        waited: Nanos,
        /// What the lanes did when it came.
        found: Found,
        /// The first of its lanes.
        led: LaneId,
    },
    /// The first kernel of a pass was launched.
    PassBegan {
        /// Who waits for it.
        class: Class,
        /// What it does.
        stage: Stage,
        /// Rows of all members.
        rows: Tokens,
        /// Requests in it.
        members: usize,
        /// Of these, background requests in a pass that a person waits for.
        riders: usize,
    },
    /// A reactive kernel took a lane whose last kernel was background work that has not ended.
    Preempted {
        /// The background requests that it took the lane from.
        victims: Vec<Subject>,
        /// The kernel's reactive requests.
        by: Vec<RequestId>,
    },
    /// A kernel came to its end.
    KernelEnded {
        /// What was launched.
        launched: Launched,
        /// From launch to now.
        took: Nanos,
        /// How it ended.
        end: KernelEnd,
    },
    /// Rows of a prompt are computed.
    Read {
        /// The request whose prompt it is.
        subject: Subject,
        /// How many rows of it.
        rows: Tokens,
    },
    /// A request has new tokens.
    Tokens {
        /// Which request.
        subject: Subject,
        /// How many: all but one were drafted.
        tokens: Tokens,
        /// Rows that could have yielded one: one more than were drafted. None for the token that a prompt's pass brings.
        rows: Option<Tokens>,
        /// Since the token before.
        gap: Option<Nanos>,
    },
    /// A lane failed, takes too long, or can be used again.
    Lane {
        /// Which lane.
        lane: LaneId,
        /// How it is now.
        health: LaneHealth,
    },
    /// KV is written to disk.
    SpillBegan {
        /// Whose; the request may have ended.
        request: RequestId,
    },
    /// KV is on disk.
    Spilled {
        /// Whose; the request may have ended.
        request: RequestId,
    },
    /// KV could not be written.
    SpillFailed {
        /// Whose; the request may have ended.
        request: RequestId,
    },
    /// KV was dropped, and the request begins again: neither memory nor disk had room, or the policy wants it so (`restart`).
    Discarded {
        /// The request that begins again.
        subject: Subject,
        /// Positions that were given up.
        computed: Tokens,
    },
    /// A graph of a device that exchanges its graphs was loaded, or was not.
    GraphLoaded {
        /// Its block, and which of the block's graphs.
        load: GraphLoad,
        /// How long that took.
        took: Nanos,
        /// Whether it is there.
        end: LoadEnd,
    },
    /// A request is over.
    Ended {
        /// The request that ended.
        subject: Subject,
        /// Whether it has an answer or failed.
        end: End,
        /// Since it came.
        lasted: Nanos,
    },
}

/// Whom a fact is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The request.
    pub request: RequestId,
    /// Its flow.
    pub flow: FlowId,
    /// Who waits for it.
    pub class: Class,
}

/// A kernel that was launched.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The work.
    pub kernel: Kernel,
    /// Its team.
    pub lanes: LaneSet,
    /// Why it was chosen.
    pub reason: Reason,
    /// When it was launched.
    pub at: Instant,
    /// The flow of each member.
    pub flows: Vec<FlowId>,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadEnd {
    /// The graph is there.
    Done,
    /// It is not.
    Failed,
}

/// How a kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEnd {
    /// As it should.
    Done,
    /// It gave its lanes back, and its pass waits for a disk.
    Waits,
    /// It failed, or its lane is gone.
    Failed,
}

/// Where KV came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// There was none.
    Nowhere,
    /// Another request had left it in memory.
    Memory,
    /// Another request had left it, and it was on disk.
    Disk,
    /// It is the request's own, which was on disk.
    Own,
}

/// What the lanes did when a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A kernel of background work ran.
    Background,
    /// No such kernel ran.
    NoBackground,
}

/// Who is in the pass that this kernel begins.
pub(crate) fn pass_began(kernel: &Kernel) -> Fact {
    let class = kernel.class();
    let riders = kernel.members.iter().filter(|member| member.class > class).count();
    let rows = kernel.members.iter().map(Member::len).sum();
    Fact::PassBegan { class, stage: kernel.stage(), rows, members: kernel.members.len(), riders }
}

/// What a launch came to.
pub(crate) fn kernel_ended(now: Instant, launched: Launched, end: KernelEnd) -> Fact {
    Fact::KernelEnded { took: now - launched.at, launched, end }
}

/// How a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneHealth {
    /// It can be used.
    Well,
    /// A kernel on it takes much longer than predicted.
    Slow,
    /// It failed, and is tried again later.
    Lost,
}
