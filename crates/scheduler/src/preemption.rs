//! Preemption: what may go between two kernels of a pass.
//!
//! A proactive pass is suspended at a kernel boundary as soon as a reactive request is ready, and only then: reactive
//! requests do not preempt each other, nor proactive ones each other. Nothing is copied or computed again, because the
//! suspended pass keeps its activation buffer and, while memory suffices, its pages, and the reactive one has its own;
//! the kernels of proactive passes are cut so short that the wait is bounded. One pass is suspended, never more, and it resumes before another
//! proactive one begins. In decode a reactive request joins at the end of the iteration. (Agent.xpu §4.4)

use crate::drift::Kind;
use crate::mechanism::Mechanism;
use crate::pass::Pass;
use crate::span::Cut;
use crate::view::View;
use duet_types::{Class, LaneSet, Nanos, Stage};

/// How the next kernel of a pass is cut. The first one of a prefill pass also takes memory from the system, for pages
/// that were never written, which no annotation knows of: half of its time is left for that.
pub(crate) fn cut(view: &View<'_>, pass: &Pass, lanes: LaneSet) -> Cut {
    if pass.class == Class::Reactive || !view.has(Mechanism::Preemption) {
        return Cut::Whole;
    }
    match within_bound(view, pass.kind(), lanes) {
        Cut::Within(bound) if pass.node == 0 && pass.stage == Stage::Prefill => Cut::Within(Nanos(bound.0 / 2)),
        cut => cut,
    }
}

/// Half the bound, as these lanes are lately: a kernel that takes twice its prediction still keeps it.
pub(crate) fn within_bound(view: &View<'_>, kind: Kind, lanes: LaneSet) -> Cut {
    Cut::Within(Nanos((view.config().limits.preempt.0 as f64 / 2.0 / view.drift(lanes, kind)) as u64))
}
