//! The request table: one row per request that was submitted and is not released.
//!
//! A row says where its request stands (stage, tokens, pass), so that it can stop after any kernel and go on later with
//! nothing computed twice. A request *knows* its prompt and what it generated; what is known and not computed is its
//! work. Invariants: `computed < known`; a row is in at most one pass; its place in every queue is its
//! arrival's, whatever happens to it. (Agent.xpu §4.1: request manager)

use crate::event::Request;
use crate::kernel::{HeadRows, Member, PassId, Yields};
use crate::offer::Offer;
use crate::queues::{Line, Queues};
use duet_types::{Class, Instant, Nanos, Net, RequestId, Stage, Tokens};
use std::collections::BTreeMap;

/// What a request is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is in memory for it.
    Queued,
    /// The world puts its KV in place.
    Restoring,
    /// It has KV and waits for a pass.
    Ready,
    /// Its rows are in a pass.
    InPass(PassId),
    /// Its KV goes to disk.
    Spilling,
    /// Its KV is on disk.
    Spilled,
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
}

/// Whether a row goes on when its answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    GoesOn,
    Cancelled,
}

/// With whom it may share a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    Any,
    /// A pass with it failed: it is run alone, so that if it was the cause it harms nobody else. Or it is the encoder's: it
    /// has brought its own company, the texts of its request.
    Alone,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) request: Request,
    pub(crate) arrived: Instant,
    /// Its place among all that arrived.
    pub(crate) arrival: u64,
    pub(crate) phase: Phase,
    /// When it had its last token, or its KV.
    pub(crate) since: Instant,
    pub(crate) computed: Tokens,
    pub(crate) generated: Tokens,
    pub(crate) fate: Fate,
    pub(crate) company: Company,
    /// What may follow its last token.
    pub(crate) offer: Offer,
    /// How long the masks of a pass have taken to make lately.
    pub(crate) masks: Nanos,
}

/// All requests, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTable {
    rows: BTreeMap<u64, Row>,
    arrivals: BTreeMap<RequestId, u64>,
    queues: Queues,
    next_arrival: u64,
}

impl RequestTable {
    /// Adds a queued row.
    pub(crate) fn insert(&mut self, now: Instant, request: Request) {
        assert!(request.prompt > Tokens::ZERO, "{} has no prompt", request.id);
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        let known = self.arrivals.insert(request.id, arrival);
        assert!(known.is_none(), "{} was submitted twice", request.id);
        let company = if request.net == Net::Encoder { Company::Alone } else { Company::Any };
        let row = Row {
            request,
            arrived: now,
            arrival,
            phase: Phase::Queued,
            since: now,
            computed: Tokens::ZERO,
            generated: Tokens::ZERO,
            fate: Fate::GoesOn,
            company,
            offer: Offer::NONE,
            masks: Nanos::ZERO,
        };
        self.queues.enter(row.line(), row.request.class, arrival);
        self.rows.insert(arrival, row);
    }

    pub(crate) fn get(&self, request: RequestId) -> Option<&Row> {
        self.rows.get(self.arrivals.get(&request)?)
    }

    /// Changes a row; its queue follows.
    pub(crate) fn update<R>(&mut self, request: RequestId, change: impl FnOnce(&mut Row) -> R) -> R {
        let arrival = self.arrivals.get(&request).unwrap_or_else(|| panic!("{request} is not in the table"));
        let row = self.rows.get_mut(arrival).expect("every arrival has a row");
        let before = row.line();
        let result = change(row);
        let after = row.line();
        if before != after {
            self.queues.leave(before, row.request.class, *arrival);
            self.queues.enter(after, row.request.class, *arrival);
        }
        result
    }

    /// Removes a row that waits for nothing.
    pub(crate) fn remove(&mut self, request: RequestId) -> Row {
        let arrival = self.arrivals.remove(&request).expect("only a request in the table is released");
        let row = self.rows.remove(&arrival).expect("every arrival has a row");
        let waits = matches!(row.phase, Phase::InPass(_) | Phase::Restoring | Phase::Spilling);
        assert!(!waits, "{request} is released while {:?}", row.phase);
        self.queues.leave(row.line(), row.request.class, arrival);
        row
    }

    /// How many rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The rows, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.values()
    }

    /// The rows of one queue, oldest first.
    pub(crate) fn queue(&self, line: Line, class: Class) -> impl DoubleEndedIterator<Item = &Row> {
        self.queues.get(line, class).iter().map(|arrival| &self.rows[arrival])
    }

    /// How long a queue is.
    pub(crate) fn queue_len(&self, line: Line, class: Class) -> usize {
        self.queues.get(line, class).len()
    }

    /// The oldest row of a class, whatever it does.
    pub(crate) fn oldest(&self, class: Class) -> Option<&Row> {
        self.oldest_that(class, |_| true)
    }

    /// The oldest of a class for which this holds.
    pub(crate) fn oldest_that(&self, class: Class, holds: impl Fn(&Row) -> bool) -> Option<&Row> {
        let of_line = |&line: &Line| self.queues.get(line, class).iter().find(|arrival| holds(&self.rows[*arrival]));
        Line::ALL.iter().filter_map(of_line).min().map(|arrival| &self.rows[arrival])
    }
}

impl Row {
    /// Its tokens: the prompt, and what was generated.
    pub(crate) fn known(&self) -> Tokens {
        self.request.prompt + self.generated
    }

    /// What its next rows are to it: more than the last token's one row is reading, even of its own words.
    pub(crate) fn stage(&self) -> Stage {
        let reads = self.generated == Tokens::ZERO || self.known() - self.computed > Tokens(1);
        if reads { Stage::Prefill } else { Stage::Decode }
    }

    /// Where it waits.
    pub(crate) fn line(&self) -> Line {
        match (self.phase, self.stage()) {
            (Phase::Queued | Phase::Spilled, _) => Line::Queued,
            (Phase::Ready, Stage::Prefill) => Line::Prefill,
            (Phase::Ready, Stage::Decode | Stage::Verify) => Line::Decode,
            (Phase::Restoring | Phase::InPass(_) | Phase::Spilling, _) => Line::Away,
        }
    }

    /// Its next rows, `rows_max` at most.
    pub(crate) fn member(&self, rows_max: Tokens) -> Member {
        let (start, known) = (self.computed, self.known());
        let (class, head) = (self.request.class, self.head());
        let rows_max = match (class, head) {
            // Rows that see those behind them come all at once.
            _ if self.request.net == Net::Encoder => known,
            (Class::Proactive, HeadRows::All) => rows_max.min(SCORED_ROWS_MAX),
            _ => rows_max,
        };
        let end = known.min(start + rows_max);
        let yields = if end == known { Yields::Token } else { Yields::Context };
        Member {
            request: self.request.id,
            class,
            stage: self.stage(),
            rows: start..end,
            yields,
            head,
            net: self.request.net,
        }
    }

    /// Which of its next rows go through the head. Those that are read again were there before.
    fn head(&self) -> HeadRows {
        if self.generated == Tokens::ZERO { self.request.head } else { HeadRows::Last }
    }

    /// Positions of keys and values that it has, of so many that it was computed for: an encoder's has none.
    pub(crate) fn kept(&self, positions: Tokens) -> Tokens {
        match self.request.net {
            Net::Decoder => positions,
            Net::Encoder => Tokens::ZERO,
        }
    }

    /// How far it has come.
    pub(crate) fn progress(&self) -> Progress {
        let has_begun = !matches!(self.phase, Phase::Queued | Phase::Restoring) || self.generated > Tokens::ZERO;
        Progress { stage: has_begun.then(|| self.stage()), computed: self.computed, generated: self.generated }
    }
}

/// Rows of a background prompt in a pass if all of them go through the head, which is no node that could be cut and so
/// comes at once with the last: over so many rows it takes little longer than reading its weights, as for one.
const SCORED_ROWS_MAX: Tokens = Tokens(32);
