//! One request after another, in the order of arrival, each with the whole machine until it ends.
//!
//! On lanes that form a team the team runs it. On others each token-wise node of a prefill is divided between the
//! static lane and the dynamic one so that both end together, always in the same way, and the rest runs on the dynamic
//! lane. It ignores class: a short question waits for a long summary. (Agent.xpu §6.1: serial NPU-iGPU inference)

use super::pipeline::{Pipeline, Sharing};
use super::{Candidate, Decision, Policy, if_idle};
use crate::reason::Reason;
use crate::request_table::Phase;
use crate::span::Cut;
use crate::view::View;
use duet_types::{LaneSet, Stage};

/// Serves requests in the order of arrival, each to its end, on all lanes.
#[derive(Debug, Default)]
pub struct Serial {
    pipeline: Pipeline,
}

impl Policy for Serial {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let oldest = view.requests().next()?;
        let (candidate, reason) = match oldest.phase() {
            Phase::Queued | Phase::Spilled => {
                return view.has_memory(oldest.id()).then(|| Decision::Begin(oldest.id()));
            }
            Phase::Restoring | Phase::Spilling => return None,
            Phase::Ready if !view.has_memory(oldest.id()) => return None,
            Phase::Ready => {
                let first = oldest.progress().generated.0 == 0;
                let reason = if first { Reason::FirstCome } else { Reason::GoesOn };
                let member = oldest.member(view.config().limits.prefill_rows);
                (Candidate::drafted(view, vec![member])?, reason)
            }
            Phase::InPass(_) => (Candidate::UnderWay(view.passes().next()?), Reason::GoesOn),
        };
        let divided = candidate.pass().stage == Stage::Prefill && view.team().is_none();
        if divided {
            return self.pipeline.next(view, candidate, Sharing::Balanced);
        }
        let all = view.team().unwrap_or_else(|| LaneSet::from_iter([view.igpu_lane()]));
        let all = view.holding(all, candidate.pass().load.net, candidate.pass().node);
        let lanes = if_idle(view, all).filter(|_| candidate.pass().can_go_on())?;
        Some(candidate.launch_cut(view, Cut::Whole, lanes, reason))
    }
}
