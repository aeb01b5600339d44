//! Speculation: how many rows of each draft go into a pass.
//!
//! A draft is offered as the chances of its rows, best first; which tokens they are, the scheduler does not know. A pass
//! that waits for memory has arithmetic to spare for rows that may be wrong; one that computes has not. So the question
//! is put to the annotations, for the pass as it is composed, on the lanes that it goes to: what do `k` more rows cost,
//! and what are they worth? Rows of all members compete, the likeliest first, and the number is chosen that yields the
//! most tokens in the time. With idle bandwidth drafts are long; in a full batch, or beside a prompt's chunk, only sure
//! rows are left. (CoordGen §3.4 fills up to the length that saturates the NPU, which is the same where a pass is flat
//! until then; "The marginal cost under the current batch" is ours.)
//!
//! Invariants: the rows of a member are the first of its draft; no class takes more than its budget; a draft never
//! pushes anybody out of memory (see [`room`](crate::room)).

use crate::annotation;
use crate::config::{SchedulerConfig, Verify};
use crate::heg::Load;
use crate::kernel::{Member, Yields, class_of, stage_of};
use crate::mechanism::Mechanism;
use crate::view::View;
use duet_types::{Class, LaneSet, Stage, Tokens};

/// Adds rows of their drafts to the decoding members of a pass on `lanes`, as many as pay.
pub(crate) fn extend(view: &View<'_>, members: &mut [Member], lanes: LaneSet) {
    if !view.has(Mechanism::Speculation) {
        return;
    }
    let offered = offered(view, members);
    if offered.is_empty() {
        return;
    }
    let rows = match view.config().limits.verify {
        Verify::Paying => paying(view, members, &offered, lanes),
        Verify::All => offered.len(),
    };
    for &(member, _) in &offered[..rows] {
        let member = &mut members[member];
        member.stage = Stage::Verify;
        member.rows.end += Tokens(1);
    }
}

/// All rows that may be added, likeliest first, by member.
fn offered(view: &View<'_>, members: &[Member]) -> Vec<(usize, f64)> {
    let limits = &view.config().limits;
    let mut offered = Vec::new();
    for (index, member) in members.iter().enumerate().filter(|(_, member)| member.stage == Stage::Decode) {
        let Some(request) = view.request(member.request) else { continue };
        let budget = limits.draft[member.class as usize].as_usize();
        offered.extend(request.offer().chances().iter().take(budget).map(|chance| (index, chance.tokens())));
    }
    // A stable sort: the rows of a member stay in their order, and of equals the first member's go first.
    offered.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let rows: u32 = members.iter().map(|member| member.len().0).sum();
    offered.truncate((limits.prefill_rows.0.saturating_sub(rows)) as usize);
    offered
}

/// How many of the offered rows make the most of the pass.
fn paying(view: &View<'_>, members: &[Member], offered: &[(usize, f64)], lanes: LaneSet) -> usize {
    let plain = stage_of(members);
    let drafted = if plain == Stage::Prefill { Stage::Prefill } else { Stage::Verify };
    let mut load = view.load(members);
    let mut yields = yields(members);
    let rate = |load: &Load, yields: f64, stage| yields / view.predict_pass(load, stage, lanes).0.max(1) as f64;
    let (mut best, mut most) = (rate(&load, yields, plain), 0);
    for (count, &(member, chance)) in offered.iter().enumerate() {
        load = load.with_draft_row(members[member].rows.end);
        yields += chance;
        let rate = rate(&load, yields, drafted);
        if rate > best {
            (best, most) = (rate, count + 1);
        }
    }
    most
}

/// The share of a pass's time that one drafted row more takes on `lanes`, by the annotations: what whoever drafts has to
/// reckon with before the pass that verifies it is composed.
#[must_use]
pub fn row_share(config: &SchedulerConfig, members: &[Member], lanes: LaneSet) -> f64 {
    let Some(last) = members.last() else { return 0.0 };
    let (load, anchors, nodes) = (Load::of(members), config.machine.anchors(lanes), 0..config.heg.nodes());
    let time = |load: &Load| annotation::predict(&config.heg, anchors, load, &nodes).0 as f64;
    let pass = time(&load);
    if pass > 0.0 { (time(&load.with_draft_row(last.rows.end)) / pass - 1.0).max(0.0) } else { 0.0 }
}

/// How long the members that yield tokens will take for their next ones, over what the pass has taken that has just ended:
/// less where it held rows of prompts.
#[must_use]
pub fn decode_share(config: &SchedulerConfig, members: &[Member], lanes: LaneSet) -> f64 {
    if members.iter().all(|member| member.stage != Stage::Prefill) {
        return 1.0;
    }
    let (anchors, nodes) = (config.machine.anchors(lanes), 0..config.heg.nodes());
    let time = |load: &Load| annotation::predict(&config.heg, anchors, load, &nodes).0.max(1) as f64;
    let yielding = members.iter().filter(|member| member.yields == Yields::Token);
    let next = yielding.fold(Load::default(), |load, member| {
        load.with_rows(member.rows.end..member.rows.end + Tokens(1), Yields::Token)
    });
    (time(&next) / time(&Load::of(members))).min(1.0)
}

/// What a pass brings without drafts, in tokens. A person waits for tokens alone; for the background a prompt's rows
/// count as much, since its time is what matters, and the rows are its work.
fn yields(members: &[Member]) -> f64 {
    let class = class_of(members);
    let counts = |member: &&Member| class == Class::Proactive || member.stage != Stage::Prefill;
    members.iter().filter(counts).map(|member| f64::from(member.len().0)).sum::<f64>().max(1.0)
}
