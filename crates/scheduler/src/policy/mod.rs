//! Policies: what to do next, given what there is.
//!
//! A policy sees a [`View`], a snapshot that it cannot change, and returns [`Decision`]s one at a time; the scheduler
//! checks each and carries it out before it asks again. `duet` and `agent-xpu` are put together from the mechanisms in
//! the files beside this folder; the others are the paper's baselines.

mod agent_xpu;
mod continuous_batching;
mod duet;
mod name;
mod pipeline;
mod restart;
mod serial;
mod timeshare;

pub use crate::decision::Decision;
pub use agent_xpu::AgentXpu;
pub use continuous_batching::ContinuousBatching;
pub use duet::Duet;
pub use name::{PolicyName, UnknownPolicy};
pub use restart::Restart;
pub use serial::Serial;
pub use timeshare::Timeshare;

use crate::batching::only_company;
use crate::kernel::{Member, Span, Yields};
use crate::order::{self, Order};
use crate::pass::Pass;
use crate::preemption;
use crate::queues::Line;
use crate::reason::Reason;
use crate::span::Cut;
use crate::speculation;
use crate::view::View;
use duet_types::{Class, LaneSet, Stage, Tokens};

/// Chooses what runs next.
pub trait Policy: std::fmt::Debug + Send {
    /// The next thing to do now; nothing if the view needs nothing.
    fn decide(&mut self, view: &View<'_>) -> Option<Decision>;

    /// How many passes it may have under way.
    fn activation_buffers(&self) -> ActivationBuffers {
        ActivationBuffers::Double
    }

    /// How a queued request comes by memory.
    fn admission(&self) -> Admission {
        Admission::Waits
    }
}

/// How a queued request comes by memory that live requests hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It waits until they end.
    Waits,
    /// A reactive one pushes proactive ones out, which begin after it.
    ByClass,
}

/// How many passes may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationBuffers {
    /// One for each class and stage. (Agent.xpu §4.1)
    Double,
    /// One for each request: what time-sharing costs. (Fig. 6 b)
    OnePerRequest,
}

/// Does nothing. It stands in while a policy is asked.
#[derive(Debug)]
pub(crate) struct Idle;

impl Policy for Idle {
    fn decide(&mut self, _: &View<'_>) -> Option<Decision> {
        None
    }
}

/// Begins requests: every reactive one at once; a proactive one when fewer than `readers` are between their queue and
/// their first decode, and while a decode batch has a place for it. Prefill takes one request at a time, so the paper's
/// `readers` is one.
fn begin(view: &View<'_>, order: Order, readers: usize) -> Option<Decision> {
    let reactive = view.head(Line::Queued, Class::Reactive);
    // While a reactive one waits for memory, no proactive one takes it.
    let next = reactive.or_else(|| {
        let free = view.live(Class::Proactive) < view.config().limits.batch;
        let more = free && view.queue_len(Line::Prefill, Class::Proactive) + reading(view) < readers;
        order::head(view, Line::Queued, Class::Proactive, order).filter(|_| more)
    });
    next.filter(|request| view.has_memory(request.id())).map(|request| Decision::Begin(request.id()))
}

/// Proactive requests that are restored, or in a pass that does not complete their prompt.
fn reading(view: &View<'_>) -> usize {
    let reads = |member: &&Member| {
        member.class == Class::Proactive && member.stage == Stage::Prefill && member.yields == Yields::Context
    };
    let in_passes = view.passes().flat_map(|pass| &pass.members).filter(reads).count();
    in_passes + usize::from(view.is_restoring(Class::Proactive))
}

/// A pass that could be launched: one under way, or one that would begin.
#[derive(Debug)]
enum Candidate<'a> {
    UnderWay(&'a Pass),
    Drafted(Pass),
}

impl<'a> Candidate<'a> {
    /// A pass of these members; nothing if there are none.
    fn drafted(view: &View<'a>, members: Vec<Member>) -> Option<Self> {
        (!members.is_empty()).then(|| Self::Drafted(view.draft(members)))
    }

    fn pass(&self) -> &Pass {
        match self {
            Self::UnderWay(pass) => pass,
            Self::Drafted(pass) => pass,
        }
    }

    fn launch(self, span: Span, lanes: LaneSet, reason: Reason) -> Decision {
        match self {
            Self::UnderWay(pass) => Decision::Launch { pass: pass.id, span, lanes, reason },
            Self::Drafted(pass) => Decision::Start { members: pass.members, span, lanes, reason },
        }
    }

    /// Its next kernel on `lanes`; with it, a pass that begins takes rows of drafts along.
    fn launch_cut(self, view: &View<'_>, cut: Cut, lanes: LaneSet, reason: Reason) -> Decision {
        let pass = self.pass();
        let holding = view.holding(lanes, pass.load.net, pass.node);
        // Of a team whose device holds other layers, the cores go on alone.
        let lanes = if lanes.contains_all(holding) { holding } else { lanes };
        let candidate = match self {
            Self::Drafted(mut pass) => {
                speculation::extend(view, &mut pass.members, lanes);
                Self::Drafted(view.draft(pass.members))
            }
            under_way => under_way,
        };
        let span = view.next_span(candidate.pass(), lanes, cut);
        candidate.launch(span, lanes, reason)
    }
}

/// A decode iteration of overdue requests alone, on `lane`: for those that the next batch has no place for.
fn overdue_decode(view: &View<'_>, lane: LaneSet) -> Option<Decision> {
    let overdue = view.queue(Line::Decode, Class::Proactive).filter(|request| view.is_overdue(request));
    let batch = only_company(overdue.take(view.config().limits.batch).collect());
    let members = batch.iter().map(|request| request.member(Tokens(1))).collect();
    let candidate = Candidate::drafted(view, members)?;
    let cut = preemption::within_bound(view, candidate.pass().kind(), lane);
    Some(candidate.launch_cut(view, cut, lane, Reason::Owed))
}

/// The lanes of a policy for one device: the team, or the dynamic lane where lanes form none.
fn single_device(view: &View<'_>) -> LaneSet {
    view.team().unwrap_or_else(|| LaneSet::from_iter([view.decode_lane()]))
}

/// These lanes, if there are any and they are idle.
fn if_idle(view: &View<'_>, lanes: LaneSet) -> Option<LaneSet> {
    (!lanes.is_empty() && view.idle().contains_all(lanes)).then_some(lanes)
}
