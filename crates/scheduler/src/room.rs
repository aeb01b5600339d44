//! Room in memory: requests are admitted, spilled, brought back and discarded.
//!
//! A request whose pages are not there is *short*: it is put aside, with what can be done for it under way, until memory
//! changes hands; then it asks again. So one that waits costs nothing, and none is forgotten. Whom it may push out: a
//! queued request, live ones of a lower class, if the policy serves by class; one that decodes, younger ones of its own
//! class too, since it holds pages and would never give them back.

use crate::command::{Command, End};
use crate::event::{Prefix, Source};
use crate::kernel::{Member, PassId};
use crate::memory::{Relief, Room};
use crate::policy::Admission;
use crate::queues::Line;
use crate::request_table::{Fate, Phase};
use crate::scheduler::Scheduler;
use duet_types::{Class, FinishReason, Net, RequestId, Stage, Tokens};

impl Scheduler {
    /// Whoever waits for memory may ask again.
    pub(crate) fn memory_changed_hands(&mut self) {
        self.short.clear();
    }

    /// Called between two kernels of a pass. If the pass is background prefill, a reactive request short of memory may
    /// evict it now; otherwise it would wait for the whole prompt. Decode passes are left alone: they end soon, and room is
    /// made after them by the usual order.
    pub(crate) fn stopped(&mut self, pass: PassId) {
        let stopped = self
            .passes
            .get(&pass)
            .is_some_and(|pass| (pass.class, pass.buffer) == (Class::Proactive, Stage::Prefill) && pass.is_idle());
        let is_reactive = |id: &RequestId| self.table.get(*id).is_some_and(|row| row.request.class == Class::Reactive);
        if stopped && self.admission == Admission::ByClass && self.short.iter().any(is_reactive) {
            self.memory_changed_hands();
        }
    }

    /// Begins a queued request, or brings one back from disk, if there is room.
    pub(crate) fn begin(&mut self, request: RequestId) {
        let row = self.table.get(request).expect("a policy chooses from the table");
        assert_eq!(row.line(), Line::Queued, "{request} has begun");
        assert!(!self.short.contains(&request), "{request} waits for memory");
        let positions = row.kept(row.known() + Tokens(1));
        let prefix = row.request.prefix.filter(|_| row.phase == Phase::Queued);
        if self.room(request, positions, prefix, End::Failed) {
            self.table.update(request, |row| row.phase = Phase::Restoring);
            self.commands.push_back(Command::Restore(request));
        }
    }

    /// Its KV is in place, as far as there is any.
    pub(crate) fn restored(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) {
        self.memory.restored(request, cached, source);
        let row = self.table.get(request);
        if let (Some(Source::TakenOver(of)), Some(row)) = (source, row) {
            self.mirrors.taken_over(of, (request, row.request.class), cached);
        }
        let prefix = row.and_then(|row| row.request.prefix);
        self.memory.no_longer_awaits(request, prefix);
        let now = self.now;
        let fate = self.table.update(request, |row| {
            assert_eq!(row.phase, Phase::Restoring, "{request} was not being restored");
            assert!(cached < row.known(), "the last token is always computed");
            (row.phase, row.computed, row.since) = (Phase::Ready, cached, now);
            row.fate
        });
        // What was taken over was counted twice until now.
        self.memory_changed_hands();
        if fate == Fate::Cancelled {
            self.release(request, End::Finished(FinishReason::Cancelled));
        } else if self.memory.is_overdrawn() {
            // It was admitted because of kept KV that is gone: it asks again, and for all of its pages.
            self.table.update(request, |row| row.request.prefix = None);
            self.discard(request);
        }
    }

    /// The members of a drafted pass whose next pages are there. The others wait; their pass goes on without them.
    pub(crate) fn with_pages(&mut self, mut members: Vec<Member>) -> Vec<Member> {
        let full = End::Finished(FinishReason::Length);
        members.iter_mut().for_each(|member| self.cut_draft(member));
        members.retain(|member| {
            // Making room for one may have sent another one away.
            let row = self.table.get(member.request);
            let is_ready = row.is_some_and(|row| row.phase == Phase::Ready);
            let end = row.map_or(member.rows.end, |row| row.kept(member.rows.end));
            is_ready && (self.memory.holds(member.request, end) || self.room(member.request, end, None, full))
        });
        members.retain(|member| self.table.get(member.request).is_some_and(|row| row.phase == Phase::Ready));
        members
    }

    /// A draft has what pages are free; without them it goes no further than the pages that its request holds.
    fn cut_draft(&mut self, member: &mut Member) {
        if member.stage != Stage::Verify || self.memory.holds(member.request, member.rows.end) {
            return;
        }
        let free = self.short.is_empty() && self.hungry.is_empty();
        if !free || self.memory.want(member.request, member.rows.end, None) != Room::Given {
            let next = member.rows.start + Tokens(1);
            let mut shorter = (next.0..member.rows.end.0).rev().map(Tokens);
            member.rows.end = shorter.find(|&end| self.memory.holds(member.request, end)).unwrap_or(next);
        }
        if member.len() == Tokens(1) {
            member.stage = Stage::Decode;
        }
    }

    /// Whether `request` has memory for so many positions. If not, it is put aside; one that can never have it ends.
    fn room(&mut self, request: RequestId, positions: Tokens, prefix: Option<Prefix>, never: End) -> bool {
        if self.comes_after_hungry(request) {
            self.short.insert(request);
            return false;
        }
        match self.memory.want(request, positions, prefix) {
            Room::Given => {
                self.hungry.remove(&request);
                return true;
            }
            Room::Short(pages) => {
                self.short.insert(request);
                if self.table.get(request).is_some_and(|row| row.phase == Phase::Ready) {
                    self.hungry.insert(request);
                }
                let victims = self.victims(request);
                let reliefs = self.memory.reliefs(self.now, pages, prefix, victims);
                reliefs.into_iter().for_each(|relief| self.relieve(relief));
            }
            Room::Never => self.release(request, never),
        }
        false
    }

    /// Whether a live request waits for a page that this one, which is not live, would take. Else one that was pushed out
    /// would come back into the room that was made, and be pushed out again.
    fn comes_after_hungry(&self, request: RequestId) -> bool {
        let row = self.table.get(request).expect("a policy chooses from the table");
        let class = |hungry: &RequestId| self.table.get(*hungry).map(|row| row.request.class);
        row.line() == Line::Queued && self.hungry.iter().filter_map(class).any(|hungry| hungry <= row.request.class)
    }

    /// Live requests that make room for this one and are in no pass: the lowest class first, then the youngest.
    fn victims(&self, request: RequestId) -> Vec<RequestId> {
        let row = self.table.get(request).expect("a policy chooses from the table");
        let (class, arrival) = (row.request.class, row.arrival);
        let lowest_first = [Class::Proactive, Class::Reactive].into_iter().filter(|&other| other >= class);
        let mut victims = Vec::new();
        for other in lowest_first {
            let ready = [Line::Prefill, Line::Decode].into_iter().flat_map(|line| self.table.queue(line, other));
            let behind = |then| match row.phase {
                Phase::Ready => other > class || then > arrival,
                _ => other > class && self.admission == Admission::ByClass,
            };
            // What the encoder reads has no memory to give.
            let ready = ready.filter(|row| row.request.net == Net::Decoder);
            let mut behind: Vec<_> =
                ready.filter(|row| behind(row.arrival)).map(|row| (row.arrival, row.request.id)).collect();
            behind.sort();
            victims.extend(behind.into_iter().rev().map(|(_, id)| id).filter(|&id| id != request));
        }
        let reactive = class == Class::Reactive && (row.phase == Phase::Ready || self.admission == Admission::ByClass);
        if reactive {
            victims.extend(self.suspended());
        }
        victims
    }

    /// Members of background passes that stopped between two kernels. They would hold their pages for as long as reactive
    /// work has the lanes; what their pass has computed is lost, as the last resort.
    fn suspended(&self) -> impl Iterator<Item = RequestId> {
        let passes = self.passes.values().filter(|pass| pass.class == Class::Proactive && pass.is_idle());
        passes.flat_map(|pass| &pass.members).filter(|member| member.net == Net::Decoder).map(|member| member.request)
    }

    fn relieve(&mut self, relief: Relief) {
        if let Relief::SpillLive(request) | Relief::Discard(request) = relief {
            if let Some(Phase::InPass(pass)) = self.table.get(request).map(|row| row.phase) {
                self.undo(pass);
            }
            if self.table.get(request).is_none() {
                // It was cancelled, and was released with its pass: with this relief, or with that of another member.
                return;
            }
        }
        match relief {
            Relief::Spill(request) => {
                self.memory.spilling(request);
                self.drop_copies(request);
                self.commands.push_back(Command::Spill(request));
            }
            Relief::Forget(request) => {
                self.memory.drop_kept(request);
                self.drop_copies(request);
                self.commands.push_back(Command::Forget(request));
                self.memory_changed_hands();
            }
            Relief::SpillLive(request) => {
                self.memory.spilling(request);
                self.drop_copies(request);
                self.hungry.remove(&request);
                self.table.update(request, |row| row.phase = Phase::Spilling);
                self.commands.push_back(Command::Spill(request));
            }
            Relief::Discard(request) => self.discard(request),
        }
    }

    /// KV is on disk; that of an ended request may have been taken over or forgotten meanwhile.
    pub(crate) fn spilled(&mut self, request: RequestId) {
        self.memory.spilled(request);
        self.memory_changed_hands();
        if self.table.get(request).is_some_and(|row| row.phase == Phase::Spilling) {
            let fate = self.table.update(request, |row| {
                row.phase = Phase::Spilled;
                row.fate
            });
            if fate == Fate::Cancelled {
                self.release(request, End::Finished(FinishReason::Cancelled));
            }
        }
    }

    /// The disk would not take it. A live request begins again, since others wait for its pages; kept KV is given up.
    pub(crate) fn spill_failed(&mut self, request: RequestId) {
        self.memory.spill_failed(request);
        self.memory_changed_hands();
        if self.table.get(request).is_some_and(|row| row.phase == Phase::Spilling) {
            self.table.update(request, |row| row.phase = Phase::Ready);
            self.discard(request);
        } else if self.memory.is_kept(request) {
            self.relieve(Relief::Forget(request));
        }
    }

    /// What was computed for a request is given up; it stands in the queue again, where it stood.
    pub(crate) fn discard(&mut self, request: RequestId) {
        let (fate, prefix) = self.table.update(request, |row| {
            assert_eq!(row.phase, Phase::Ready, "{request} has nothing to discard");
            (row.phase, row.computed) = (Phase::Queued, Tokens::ZERO);
            (row.fate, row.request.prefix)
        });
        self.hungry.remove(&request);
        self.drop_copies(request);
        self.memory.discarded(request);
        self.memory.awaits(request, prefix);
        self.memory_changed_hands();
        self.commands.push_back(Command::Discard(request));
        if fate == Fate::Cancelled {
            self.release(request, End::Finished(FinishReason::Cancelled));
        }
    }
}
