//! Keys and values of requests: put in place, written to disk, discarded, and kept when their request ends.

use super::{VirtualWorld, submission};
use crate::answers::Answers;
use crate::kv::Keeps;
use duet_scheduler::{End, Event, Source};
use duet_types::{Nanos, RequestId, Tokens};

impl<A: Answers> VirtualWorld<A> {
    pub(super) fn restore(&mut self, request: RequestId) {
        assert!(self.requests.contains_key(&request), "{request} is restored, and is not there");
        let shared = self.shared(request);
        let known = self.client(request).prompt + self.requests[&request].generated;
        let found = self.kv.restore(request, shared, known + Tokens(1));
        self.answers.placed(request, found.cached, found.source);
        if let Some(Source::TakenOver(of)) = found.source {
            self.lanes.copies.taken_over(of, request, found.cached);
        }
        let at = self.now + Nanos(self.page_io.0 * found.read as u64);
        self.schedule(at, Event::Restored { request, cached: found.cached, source: found.source });
    }

    pub(super) fn spill(&mut self, request: RequestId) {
        assert!(!self.runs(request), "{request} is spilled while it runs");
        // A pass that is given up for the pages of its members.
        if let Some(pass) = self.passes.pass_of(request) {
            self.undo(pass);
        }
        let pages = self.kv.spill(request);
        self.lanes.copies.forget(request);
        let at = self.now + Nanos(self.page_io.0 * pages.unwrap_or(0) as u64);
        let fails = pages.is_none() || self.failing_spills.contains(&self.spills);
        self.spills += 1;
        self.schedule(at, if fails { Event::SpillFailed { request } } else { Event::Spilled { request } });
    }

    pub(super) fn release(&mut self, request: RequestId, end: End) {
        assert!(!self.runs(request), "{request} is released while it runs");
        let state = self.requests.remove(&request);
        let state = state.unwrap_or_else(|| panic!("{request} is released, and is not there"));
        if let Some(pass) = self.passes.pass_of(request) {
            assert!(state.cancelled, "{request} is released in the middle of pass {pass}");
            self.undo(pass);
        }
        assert!(!self.compiler.has_any(request), "{request} is released, but not its graph");
        let keeps = if end == End::Failed { Keeps::Nothing } else { Keeps::All };
        self.kv.ended(request, keeps);
        match keeps {
            Keeps::All => self.answers.kept(request),
            Keeps::Nothing => self.answers.dropped(request),
        }
        let before = self.ended.insert(request, end);
        assert!(before.is_none(), "{request} was released twice");
        for (next, gap) in self.followers.remove(&request).unwrap_or_default() {
            let (at, client) = (self.now + gap, self.client(next));
            if client.cancelled.is_none_or(|cancelled| at < cancelled) {
                self.schedule(at, submission(next, client));
            }
        }
    }

    pub(super) fn discard(&mut self, request: RequestId) {
        assert!(!self.runs(request), "{request} is discarded while it runs");
        assert!(self.requests.contains_key(&request), "{request} is discarded, and is not there");
        if let Some(pass) = self.passes.pass_of(request) {
            self.undo(pass);
        }
        self.kv.discard(request);
        self.lanes.copies.forget(request);
        self.answers.discarded(request);
    }

    pub(super) fn runs(&self, request: RequestId) -> bool {
        self.lanes.running().any(|kernel| kernel.members.iter().any(|member| member.request == request))
    }
}
