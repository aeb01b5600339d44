//! What a policy decides, one thing at a time.

use crate::kernel::{Member, PassId, Span};
use crate::reason::Reason;
use duet_types::{Instant, LaneSet, RequestId};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Begin a queued request, or bring back one from disk.
    Begin(RequestId),
    /// Begin a pass and launch its first kernel.
    Start {
        /// Next rows of requests that are ready.
        members: Vec<Member>,
        /// Its first kernel.
        span: Span,
        /// On which idle lanes.
        lanes: LaneSet,
        /// Why.
        reason: Reason,
    },
    /// Launch the next kernel of a pass under way.
    Launch {
        /// Which.
        pass: PassId,
        /// The kernel.
        span: Span,
        /// On which idle lanes.
        lanes: LaneSet,
        /// Why.
        reason: Reason,
    },
    /// Prepare a graph for a request's prefill.
    Prepare(RequestId),
    /// Reclaim a request's graph.
    Reclaim(RequestId),
    /// Ask again later.
    Wait {
        /// When.
        until: Instant,
        /// What for.
        reason: Reason,
    },
    /// Throw away what was computed for a request.
    Restart(RequestId),
}

impl Decision {
    /// The same, because it is owed.
    pub(crate) fn into_owed(self) -> Self {
        match self {
            Self::Start { members, span, lanes, .. } => Self::Start { members, span, lanes, reason: Reason::Owed },
            Self::Launch { pass, span, lanes, .. } => Self::Launch { pass, span, lanes, reason: Reason::Owed },
            other => other,
        }
    }
}
