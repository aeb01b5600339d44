//! Policies: what to do next, given what there is.
//!
//! A policy sees a [`View`], a snapshot that it cannot change, and returns [`Decision`]s; the scheduler checks them
//! and carries them out. The view knows nothing that a real machine would not know: no answer's length, no future
//! arrival. One file per policy.

mod fcfs;

pub use fcfs::Fcfs;

use crate::command::Reason;
use crate::request_table::{Activity, Lifecycle, Progress, RequestTable, Row};
use duet_types::{Class, Instant, LaneSet, RequestId, Tokens};

/// Chooses what runs next.
pub trait Policy: std::fmt::Debug + Send {
    /// What to do now; nothing if the view needs nothing. Decisions of one call must not contend for a lane.
    fn decide(&self, view: &View<'_>) -> Vec<Decision>;
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Begin a queued request: look for KV of its prefix.
    Begin(RequestId),
    /// Launch the next kernel of an idle request that has begun.
    Launch {
        /// Whose.
        request: RequestId,
        /// On which idle lanes.
        lanes: LaneSet,
        /// Why.
        reason: Reason,
    },
}

/// A snapshot of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) now: Instant,
    pub(crate) lanes: LaneSet,
    pub(crate) idle: LaneSet,
    pub(crate) table: &'a RequestTable,
}

/// One request of a [`View`].
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    row: &'a Row,
}

impl<'a> View<'a> {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// All lanes.
    #[must_use]
    pub fn lanes(&self) -> LaneSet {
        self.lanes
    }

    /// Lanes that run nothing.
    #[must_use]
    pub fn idle(&self) -> LaneSet {
        self.idle
    }

    /// The requests, oldest first. Nothing is copied.
    pub fn requests(&self) -> impl Iterator<Item = RequestView<'a>> + use<'a> {
        self.table.iter().map(|row| RequestView { row })
    }
}

impl<'a> RequestView<'a> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.row.request.id
    }

    /// Who waits for it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.row.request.class
    }

    /// Length of its prompt.
    #[must_use]
    pub fn prompt(&self) -> Tokens {
        self.row.request.prompt
    }

    /// When it arrived.
    #[must_use]
    pub fn arrived(&self) -> Instant {
        self.row.arrived
    }

    /// Where it stands.
    #[must_use]
    pub fn lifecycle(&self) -> &'a Lifecycle {
        &self.row.lifecycle
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.row.progress()
    }

    /// Whether it waits for no kernel and no restore.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.row.activity == Activity::Idle
    }
}
