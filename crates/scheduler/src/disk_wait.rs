//! Passes that wait for a disk: when a kernel gives its lanes back, and what goes in between.
//!
//! Experts on disk are read when rows go to them, and which these are is known only there: in the middle of a kernel. What
//! it does then is said when it is launched. It ends, and its pass goes on at that node when the data has come, if somebody
//! else could have the lanes: another request is known, or its own is background work that would keep a person waiting for
//! longer than it may. Else it keeps them, which is quicker, since it computes what is there while the rest comes.
//!
//! A kernel that gives its lanes back is cut by the time that it has them. So a node that reads many experts is not cut in
//! rows, each of which would read them again.
//!
//! While a person's pass waits, background work has the lanes only for as long as that will probably take, or, if the disk
//! is late, for half of the time that the pass has waited: so it makes a wait longer by half at the most. Background work
//! that is [overdue](crate::ageing) has its share whatever waits.
//!
//! Lanes whose nodes are divided in chunks have no experts on disk, and kernels with them wait.

use crate::decision::Decision;
use crate::heg::Heg;
use crate::kernel::{OnMiss, Span};
use crate::mechanism::Mechanism;
use crate::pass::Pass;
use crate::reason::Reason;
use crate::span::Cut;
use crate::view::View;
use duet_types::{Class, Instant, LaneSet, Nanos};
use std::borrow::Cow;

/// What the next kernel of a pass does when data is missing.
pub(crate) fn on_miss(view: &View<'_>, pass: &Pass) -> OnMiss {
    let takes = Nanos((view.config().graph(pass.load.net).ffn.disk_time(pass.load.rows) * 1e9) as u64);
    let machine = &view.config().machine;
    if takes == Nanos::ZERO || machine.dynamic() != machine.all() || !view.has(Mechanism::GiveBack) {
        return OnMiss::Waits;
    }
    let is_member = |id| pass.members.iter().any(|member| member.request == id);
    let has_others = view.requests().any(|request| !is_member(request.id()));
    let is_long = pass.class == Class::Proactive && takes > view.config().limits.preempt;
    if has_others || is_long { OnMiss::GivesBack } else { OnMiss::Waits }
}

/// What a pass goes through, as far as its kernels have their lanes for it.
pub(crate) fn on_lanes<'a>(view: &View<'a>, pass: &Pass) -> Cow<'a, Heg> {
    let graph = view.config().graph(pass.load.net);
    match on_miss(view, pass) {
        OnMiss::Waits => Cow::Borrowed(graph),
        OnMiss::GivesBack => Cow::Owned(graph.clone().on_disk(None)),
    }
}

/// What a background kernel may take while a person's pass waits for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    since: Instant,
    /// How long it is from now on.
    room: Nanos,
}

/// The gap that there is now; none if no person's pass waits for a disk.
pub(crate) fn gap(view: &View<'_>) -> Option<Gap> {
    let coming = view.passes().filter(|pass| pass.class == Class::Reactive).find_map(Pass::coming)?;
    let left = if coming.end > view.now() { coming.end - view.now() } else { Nanos::ZERO };
    let waited = view.now() - coming.start;
    Some(Gap { since: coming.start, room: left.max(Nanos(waited.0 / 2)) })
}

impl Gap {
    /// A cut that fits.
    pub(crate) fn cut(self, cut: Cut) -> Cut {
        match cut {
            Cut::Whole => Cut::Within(self.room),
            Cut::Within(bound) => Cut::Within(bound.min(self.room)),
            Cut::Chunks(bound, chunk) => Cut::Chunks(bound.min(self.room), chunk),
            Cut::Nodes(bound) => Cut::Nodes(bound.min(self.room)),
        }
    }

    /// What is to be done instead of a kernel that does not fit: nothing, and then to look again when it would, if the disk
    /// is that late. Nothing at all if it fits.
    pub(crate) fn instead(
        self,
        view: &View<'_>,
        pass: &Pass,
        span: &Span,
        lanes: LaneSet,
    ) -> Result<(), Option<Decision>> {
        let takes = view.on_lanes(pass, span, lanes);
        if takes <= self.room {
            return Ok(());
        }
        let until = self.since + Nanos(2 * takes.0);
        // Whoever else comes before that looks, too.
        let waits = until > view.now() && view.next_timer().is_none_or(|at| at > until);
        Err(waits.then_some(Decision::Wait { until, reason: Reason::DiskLate }))
    }
}
