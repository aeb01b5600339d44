//! Contention deferral: memory-bound kernels of different classes do not run side by side.
//!
//! Lanes share the memory bus. A memory-bound prefill kernel (attention of a short prompt) beside memory-bound decode
//! slows both; a compute-bound one hardly does. If both sides are of the same class they run together; otherwise the
//! lower class waits until the higher one is done, whichever side it is on. (Agent.xpu §4.3 ⑤)

use crate::machine::Bound;
use crate::mechanism::Mechanism;
use crate::view::{RunningView, View};
use duet_types::{Class, LaneSet};

/// Whether a kernel of this class on these lanes, bound by that, has to wait for what runs.
pub(crate) fn must_wait(view: &View<'_>, class: Class, lanes: LaneSet, bound: Bound) -> bool {
    let hurts = |running: &RunningView| {
        let both = bound == Bound::Memory && running.bound == Bound::Memory;
        running.class == Class::Reactive && both && is_felt(view, running.lanes, lanes)
    };
    view.has(Mechanism::ContentionDeferral)
        && class == Class::Proactive
        && view.running().any(|running| hurts(&running))
}

/// Whether memory-bound kernels on these lanes disturb each other by more than background work may: so they do, unless
/// it was measured of the two that they do not.
fn is_felt(view: &View<'_>, lanes: LaneSet, beside: LaneSet) -> bool {
    let measured = view.config().machine.measured_contention(lanes, beside);
    let bearable = 1.0 + view.config().limits.stretch;
    measured.is_none_or(|contention| contention.factor(Bound::Memory, Bound::Memory) > bearable)
}
