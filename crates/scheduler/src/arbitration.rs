//! Arbitration of the dynamic lane: prefill kernels go first, whatever their class; decode fills the gaps.
//!
//! Prefill needs the dynamic lane for short bursts only (attention, remainders), and while it waits for one, the static
//! lane waits too; decode needs it all the time. (Agent.xpu §4.3 ③)
//!
//! Where prefill would need it all the time too (many prompts shorter than a chunk), decode would stop for as long as
//! they come. The paper has no answer to that; a budget for the longest gap between two tokens is ours.

use crate::mechanism::Mechanism;
use crate::queues::Line;
use crate::view::{RequestView, View};
use duet_types::{Class, Stage};

/// A stage that wants the dynamic lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Prefill,
    Decode,
}

/// In which order claims are looked at.
pub(crate) fn order(view: &View<'_>) -> [Claim; 2] {
    if view.has(Mechanism::PrefillFirst) { [Claim::Prefill, Claim::Decode] } else { [Claim::Decode, Claim::Prefill] }
}

/// Whether a stream of this class has stopped for so long that its decode goes before prefill.
pub(crate) fn decode_is_late(view: &View<'_>, class: Class) -> bool {
    let decoding = view.passes().filter(|pass| pass.buffer == Stage::Decode).flat_map(|pass| &pass.members);
    let decoding = decoding.filter(|member| member.class == class).filter_map(|member| view.request(member.request));
    view.queue(Line::Decode, class).chain(decoding).any(|request| is_late(view, &request))
}

/// Half of the budget has passed since its last token; the other half is for what it has to wait for now.
pub(crate) fn is_late(view: &View<'_>, request: &RequestView<'_>) -> bool {
    (view.now() - request.since()).0 >= view.config().limits.decode_stall.0 / 2
}
