//! The request table: one row per request that was submitted and is not released.
//!
//! A row says where its request stands (stage, node, tokens), so that it can stop after any kernel and go on later
//! with nothing computed twice. Rows are in the order of arrival. Invariants: a row is idle, or waits for exactly one
//! answer (a restore or a kernel); `cached <= computed < prompt` while prefilling; at least one token is generated once decoding.
//! (Agent.xpu §4.1)

use crate::event::{Outcome, Request};
use crate::kernel::{Completes, Kernel};
use duet_types::{FinishReason, Instant, RequestId, Stage, Tokens};
use std::collections::BTreeMap;
use std::ops::Range;

/// The life of a request. Each stage holds only what exists then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Nothing was done for it.
    Queued,
    /// The world looks for KV of its prefix.
    Restoring,
    /// Its prompt is read.
    Prefilling {
        /// Leading prompt tokens whose keys and values were in the cache when it began.
        cached: Tokens,
        /// Leading prompt tokens whose keys and values are in the cache now.
        computed: Tokens,
        /// The pass that has begun and not ended.
        pass: Option<PassUnderWay>,
    },
    /// It generates.
    Decoding {
        /// Tokens generated; the last one is not in the cache yet.
        generated: Tokens,
        /// The pass that has begun and not ended.
        pass: Option<PassUnderWay>,
    },
}

/// A pass between two kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassUnderWay {
    /// Positions it computes.
    pub rows: Range<Tokens>,
    /// The next HEG node.
    pub node: usize,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing; absent before its first kernel.
    pub stage: Option<Stage>,
    /// Positions whose keys and values are in the cache.
    pub computed: Tokens,
    /// Tokens generated.
    pub generated: Tokens,
    /// The next HEG node of its pass; 0 between passes.
    pub node: usize,
}

/// What a row waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Idle,
    Restoring,
    Running(Kernel),
}

/// Whether a row goes on when its answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    GoesOn,
    Cancelled,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) request: Request,
    pub(crate) arrived: Instant,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) activity: Activity,
    pub(crate) fate: Fate,
}

/// All requests, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTable {
    rows: BTreeMap<u64, Row>,
    arrivals: BTreeMap<RequestId, u64>,
    next_arrival: u64,
}

impl RequestTable {
    /// Adds a queued row.
    pub(crate) fn insert(&mut self, now: Instant, request: Request) {
        assert!(request.prompt > Tokens::ZERO, "{} has no prompt", request.id);
        let known = self.arrivals.insert(request.id, self.next_arrival);
        assert!(known.is_none(), "{} was submitted twice", request.id);
        let row =
            Row { request, arrived: now, lifecycle: Lifecycle::Queued, activity: Activity::Idle, fate: Fate::GoesOn };
        self.rows.insert(self.next_arrival, row);
        self.next_arrival += 1;
    }

    pub(crate) fn get_mut(&mut self, request: RequestId) -> Option<&mut Row> {
        self.rows.get_mut(self.arrivals.get(&request)?)
    }

    /// Removes a row that waits for nothing.
    pub(crate) fn remove(&mut self, request: RequestId) {
        let arrival = self.arrivals.remove(&request).expect("only a request in the table is released");
        let row = self.rows.remove(&arrival).expect("every arrival has a row");
        assert_eq!(row.activity, Activity::Idle, "{request} is released while work for it is under way");
    }

    /// The rows, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }
}

impl Row {
    /// How far it has come.
    pub(crate) fn progress(&self) -> Progress {
        let (stage, computed, generated, pass) = match &self.lifecycle {
            Lifecycle::Queued | Lifecycle::Restoring => (None, Tokens::ZERO, Tokens::ZERO, &None),
            Lifecycle::Prefilling { computed, pass, .. } => (Some(Stage::Prefill), *computed, Tokens::ZERO, pass),
            Lifecycle::Decoding { generated, pass } => {
                (Some(Stage::Decode), self.request.prompt + *generated - Tokens(1), *generated, pass)
            }
        };
        Progress { stage, computed, generated, node: pass.as_ref().map_or(0, |pass| pass.node) }
    }

    /// Takes note that `cached` prompt tokens need no computing.
    pub(crate) fn restored(&mut self, cached: Tokens) {
        assert_eq!(self.activity, Activity::Restoring, "{} was not being restored", self.request.id);
        assert!(cached < self.request.prompt, "the last prompt token is always computed");
        self.activity = Activity::Idle;
        self.lifecycle = Lifecycle::Prefilling { cached, computed: cached, pass: None };
    }

    /// Takes note of what its kernel did. Returns why the request is finished, if it is.
    pub(crate) fn completed(&mut self, outcome: Outcome) -> Option<FinishReason> {
        let Activity::Running(kernel) = std::mem::replace(&mut self.activity, Activity::Idle) else {
            panic!("{} ran no kernel", self.request.id);
        };
        match (kernel.completes, outcome) {
            (Completes::Span, Outcome::Progressed) => {
                *self.pass_mut() = Some(PassUnderWay { rows: kernel.rows, node: kernel.nodes.end });
                None
            }
            (Completes::Chunk, Outcome::Progressed) => {
                let Lifecycle::Prefilling { computed, pass, .. } = &mut self.lifecycle else {
                    panic!("{} computes no prompt", self.request.id);
                };
                *computed = kernel.rows.end;
                *pass = None;
                None
            }
            (Completes::Token, Outcome::Token { finished }) => {
                let generated = self.progress().generated + Tokens(1);
                self.lifecycle = Lifecycle::Decoding { generated, pass: None };
                finished
            }
            (completes, outcome) => panic!("{} completes {completes:?} but brought {outcome:?}", kernel.id),
        }
    }

    fn pass_mut(&mut self) -> &mut Option<PassUnderWay> {
        match &mut self.lifecycle {
            Lifecycle::Prefilling { pass, .. } | Lifecycle::Decoding { pass, .. } => pass,
            Lifecycle::Queued | Lifecycle::Restoring => panic!("{} has not begun", self.request.id),
        }
    }
}
