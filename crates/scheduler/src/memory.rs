//! The memory manager: who holds KV pages, and who gives them up.
//!
//! A request is admitted with all pages of its prompt, so that prefill never stops for memory; decode takes a page at a
//! time. What an ended request leaves is kept for its flow. When pages are wanted, kept KV goes first, in the order of
//! [predicted reuse](crate::reuse), to disk if there is room for it; then live requests, youngest first, whole, to disk.
//! Kept KV on disk makes room there for what is worth more. What is on disk is read back, not computed again; where the
//! disk is full or absent, a live request begins again. Pages that several tables share are counted for each, so memory
//! never runs out before the ledger says so. (Agent.xpu §4.1: memory manager)
//!
//! Invariants: `used` is the sum over live and kept holdings in memory, and at most `pages`, but for kept KV that a
//! request will take over whose restoration is under way: it is counted for both until then. What is being put in place
//! for somebody is neither spilled nor forgotten.

use crate::event::{Prefix, Source};
use crate::memory_limits::MemoryLimits;
use crate::reuse::{Lineage, Use, Worth};
use duet_types::{Class, Instant, RequestId, Tokens};
use std::collections::{BTreeMap, BTreeSet};

/// Who holds how many pages.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    limits: MemoryLimits,
    live: BTreeMap<RequestId, Holding>,
    kept: BTreeMap<RequestId, Kept>,
    /// Requests in the table whose prompts begin with kept KV, by whose it is.
    awaited: BTreeMap<RequestId, BTreeSet<RequestId>>,
    used: usize,
    on_disk: usize,
    /// Pages that spills under way will free.
    coming: usize,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    pages: usize,
    /// Positions that it was to have when it began, or that what it goes on from was to have.
    begun: Tokens,
    place: Place,
    lineage: Lineage,
}

#[derive(Clone, Debug)]
struct Kept {
    tokens: Tokens,
    pages: usize,
    /// As [`Holding::begun`].
    begun: Tokens,
    place: Place,
    usage: Use,
    /// Requests that it is being put in place for, and what they were admitted for.
    restoring: BTreeMap<RequestId, Payment>,
}

/// What a request that continues kept KV was admitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payment {
    /// Free pages.
    Pages,
    /// The pages of the kept KV, which it will take over.
    Credit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Spilling,
    Disk,
}

/// What to do for somebody who wants pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// The pages are there, and are its own now.
    Given,
    /// So many are missing, beside those that are being freed already.
    Short(usize),
    /// It wants more than there is.
    Never,
}

/// One way to free pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relief {
    Forget(RequestId),
    Spill(RequestId),
    /// A live request goes to disk.
    SpillLive(RequestId),
    /// A live request begins again, since the disk is full.
    Discard(RequestId),
}

impl Memory {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        assert!(limits.pages > 0 && limits.page.0 > 0, "there must be memory");
        Self {
            limits,
            live: BTreeMap::new(),
            kept: BTreeMap::new(),
            awaited: BTreeMap::new(),
            used: 0,
            on_disk: 0,
            coming: 0,
        }
    }

    /// A request waits to continue what is kept.
    pub(crate) fn awaits(&mut self, request: RequestId, prefix: Option<Prefix>) {
        if let Some(prefix) = prefix {
            self.awaited.entry(prefix.of).or_default().insert(request);
        }
    }

    /// The request that waited for kept KV has it, or does not want it any more.
    pub(crate) fn no_longer_awaits(&mut self, request: RequestId, prefix: Option<Prefix>) {
        let Some(prefix) = prefix else { return };
        if let Some(waiting) = self.awaited.get_mut(&prefix.of) {
            waiting.remove(&request);
            if waiting.is_empty() {
                self.awaited.remove(&prefix.of);
            }
        }
        if let Some(kept) = self.kept.get_mut(&prefix.of) {
            kept.restoring.remove(&request);
        }
    }

    /// Whether `request` has pages for `positions`.
    pub(crate) fn holds(&self, request: RequestId, positions: Tokens) -> bool {
        let holding = self.live.get(&request).filter(|holding| holding.place == Place::Memory);
        holding.is_some_and(|holding| self.limits.pages_for(positions, holding.begun) <= holding.pages)
    }

    /// `computed` positions of an answer are computed: pages beyond the next one, and those of a rejected draft, are free again.
    pub(crate) fn keeps(&mut self, request: RequestId, computed: Tokens) {
        let Some(holding) = self.live.get_mut(&request).filter(|holding| holding.place == Place::Memory) else {
            return;
        };
        // The last token is to be computed next. Only what is computed has let windows pass.
        let next = computed + Tokens(1);
        let has_passed = !self.limits.fits_whole(computed.max(holding.begun));
        let fits = has_passed || self.limits.fits_whole(next);
        let pages = if fits { holding.pages.min(self.limits.pages_for(next, holding.begun)) } else { holding.pages };
        self.used -= holding.pages - pages;
        holding.pages = pages;
    }

    /// Wants pages for `positions` of `request` in all, beside what it holds. `credit` is kept KV that it will take over.
    pub(crate) fn want(&mut self, request: RequestId, positions: Tokens, credit: Option<Prefix>) -> Room {
        let holding = self.live.get(&request).filter(|holding| holding.place == Place::Memory);
        let (held, begun) = holding.map_or((0, positions), |holding| (holding.pages, holding.begun));
        let wanted = self.limits.pages_for(positions, begun);
        if wanted > self.limits.pages {
            return Room::Never;
        }
        let missing = wanted.saturating_sub(held);
        let free = self.limits.pages.saturating_sub(self.used);
        if missing <= free {
            self.restoring(request, credit, Payment::Pages);
            self.give(request, missing, begun);
            return Room::Given;
        }
        let beside_free = missing - free;
        let credited = credit.map_or(0, |prefix| self.creditable(prefix));
        if beside_free <= credited {
            self.restoring(request, credit, Payment::Credit);
            self.give(request, missing, begun);
            return Room::Given;
        }
        Room::Short((beside_free - credited).saturating_sub(self.coming))
    }

    /// Pages of kept KV that will be the request's own as it is.
    fn creditable(&self, prefix: Prefix) -> usize {
        let kept = self.kept.get(&prefix.of).filter(|kept| kept.is_idle());
        kept.filter(|kept| kept.tokens == prefix.tokens && kept.place == Place::Memory).map_or(0, |kept| kept.pages)
    }

    /// Kept KV is going to be put in place for `request`: it stays as it is until then.
    fn restoring(&mut self, request: RequestId, prefix: Option<Prefix>, payment: Payment) {
        if let Some(kept) = prefix.and_then(|prefix| self.kept.get_mut(&prefix.of)) {
            kept.restoring.insert(request, payment);
        }
    }

    /// Whether more was given than there is: what a request was to take over was not there any more.
    pub(crate) fn is_overdrawn(&self) -> bool {
        if self.used <= self.limits.pages {
            // The usual case, and nobody has to look at all that is kept.
            return false;
        }
        let credited =
            self.kept.values().filter(|kept| kept.restoring.values().any(|&payment| payment == Payment::Credit));
        self.used > self.limits.pages + credited.map(|kept| kept.pages).sum::<usize>()
    }

    fn give(&mut self, request: RequestId, pages: usize, begun: Tokens) {
        let new = Holding { pages: 0, begun, place: Place::Memory, lineage: Lineage::New };
        let holding = self.live.entry(request).or_insert(new);
        if holding.place == Place::Disk {
            // It comes back: its file is read and then gone.
            self.on_disk -= holding.pages;
            *holding = Holding { pages: 0, begun: begun.max(holding.begun), place: Place::Memory, ..*holding };
        }
        holding.pages += pages;
        self.used += pages;
    }

    /// How to free `short` pages, or as many as can be: kept KV by worth, then live requests in the order of `victims`.
    /// What the request counts on taking over (`credit`) is spared.
    pub(crate) fn reliefs(
        &self,
        now: Instant,
        short: usize,
        credit: Option<Prefix>,
        victims: Vec<RequestId>,
    ) -> Vec<Relief> {
        let mut found = 0;
        let mut reliefs = Vec::new();
        let mut disk = Disk::new(self, now);
        let spared = credit.filter(|&prefix| self.creditable(prefix) > 0).map(|prefix| prefix.of);
        for (worth, request) in self.by_worth(now, Place::Memory) {
            if found >= short {
                break;
            }
            if spared == Some(request) {
                continue;
            }
            let kept = &self.kept[&request];
            found += kept.pages;
            // What nobody will ask for is not worth the write.
            let is_worth_it = kept.usage.lineage != Lineage::OneOff;
            let spills = is_worth_it && disk.make_room(kept.pages, Some(worth), &mut reliefs);
            reliefs.push(if spills { Relief::Spill(request) } else { Relief::Forget(request) });
        }
        for request in victims {
            if found >= short {
                break;
            }
            let Some(holding) = self.live.get(&request).filter(|holding| holding.place == Place::Memory) else {
                continue;
            };
            found += holding.pages;
            let spills = disk.make_room(holding.pages, None, &mut reliefs);
            reliefs.push(if spills { Relief::SpillLive(request) } else { Relief::Discard(request) });
        }
        reliefs
    }

    /// Kept KV that is not being put in place for anybody, least worth first.
    fn by_worth(&self, now: Instant, place: Place) -> Vec<(Worth, RequestId)> {
        let all = self.kept.iter().filter(|(_, kept)| kept.place == place && kept.is_idle());
        let mut all: Vec<_> =
            all.map(|(&request, kept)| (self.usage(request, kept).worth(now, request), request)).collect();
        all.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        all
    }

    fn usage(&self, request: RequestId, kept: &Kept) -> Use {
        let lineage = if self.awaited.contains_key(&request) { Lineage::Awaited } else { kept.usage.lineage };
        Use { lineage, ..kept.usage }
    }

    /// A spill of live or kept KV has begun.
    pub(crate) fn spilling(&mut self, request: RequestId) {
        let (place, pages) = self.place_mut(request).expect("only what is held is spilled");
        *place = Place::Spilling;
        self.on_disk += pages;
        self.coming += pages;
    }

    /// A spill has ended; its pages are free.
    pub(crate) fn spilled(&mut self, request: RequestId) {
        // It may have been forgotten meanwhile.
        if let Some((place, pages)) = self.place_mut(request)
            && *place == Place::Spilling
        {
            *place = Place::Disk;
            self.used -= pages;
            self.coming -= pages;
        }
    }

    /// A spill has failed: everything is as it was.
    pub(crate) fn spill_failed(&mut self, request: RequestId) {
        if let Some((place, pages)) = self.place_mut(request)
            && *place == Place::Spilling
        {
            *place = Place::Memory;
            self.on_disk -= pages;
            self.coming -= pages;
        }
    }

    /// A request has its KV, from `source`.
    pub(crate) fn restored(&mut self, request: RequestId, cached: Tokens, source: Option<Source>) {
        let Some(source) = source else { return };
        let (Source::TakenOver(from) | Source::Forked(from)) = source;
        let before = self.kept.get(&from).map_or(Tokens::ZERO, |kept| kept.begun);
        let lineage = match source {
            Source::TakenOver(of) => {
                self.drop_kept(of);
                Lineage::Continued
            }
            // A common greeting says nothing.
            Source::Forked(_) if cached < self.limits.page => Lineage::New,
            Source::Forked(from) => match self.kept.get(&from) {
                // Two that begin alike and go different ways: a template, unless the first one is a conversation.
                Some(kept) if kept.usage.lineage == Lineage::Continued => Lineage::New,
                _ => {
                    self.mark(from, Lineage::OneOff);
                    Lineage::OneOff
                }
            },
        };
        if let Some(holding) = self.live.get_mut(&request) {
            *holding = Holding { lineage, begun: holding.begun.max(before), ..*holding };
        }
    }

    fn mark(&mut self, request: RequestId, lineage: Lineage) {
        if let Some(kept) = self.kept.get_mut(&request) {
            kept.usage.lineage = lineage;
        }
    }

    /// A live request ended, and left `tokens`, or nothing.
    pub(crate) fn ended(&mut self, now: Instant, request: RequestId, class: Class, left: Option<Tokens>) {
        let Some(holding) = self.live.remove(&request) else { return };
        match holding.place {
            Place::Memory => self.used -= holding.pages,
            Place::Disk => self.on_disk -= holding.pages,
            Place::Spilling => unreachable!("a request is not released while it is spilled"),
        }
        if let Some(tokens) = left.filter(|tokens| *tokens > Tokens::ZERO) {
            let pages = self.limits.pages_for(tokens, holding.begun);
            let place = match holding.place {
                Place::Disk => {
                    self.on_disk += pages;
                    Place::Disk
                }
                _ => {
                    self.used += pages;
                    Place::Memory
                }
            };
            let usage = Use { lineage: holding.lineage, class, last: now };
            let (begun, restoring) = (holding.begun, BTreeMap::new());
            self.kept.insert(request, Kept { tokens, pages, begun, place, usage, restoring });
        }
    }

    /// What an ended request left is gone.
    pub(crate) fn drop_kept(&mut self, request: RequestId) {
        let Some(kept) = self.kept.remove(&request) else { return };
        match kept.place {
            Place::Memory => self.used -= kept.pages,
            Place::Disk => self.on_disk -= kept.pages,
            Place::Spilling => {
                self.used -= kept.pages;
                self.on_disk -= kept.pages;
                self.coming -= kept.pages;
            }
        }
    }

    /// Whether this ended request's KV is kept.
    pub(crate) fn is_kept(&self, request: RequestId) -> bool {
        self.kept.contains_key(&request)
    }

    /// A live request begins again: it holds nothing.
    pub(crate) fn discarded(&mut self, request: RequestId) {
        if let Some(holding) = self.live.remove(&request) {
            match holding.place {
                Place::Memory => self.used -= holding.pages,
                Place::Disk => self.on_disk -= holding.pages,
                Place::Spilling => unreachable!("a request is not discarded while it is spilled"),
            }
        }
    }

    /// How it is used.
    pub(crate) fn pages(&self) -> Pages {
        Pages {
            capacity: self.limits.pages,
            used: self.used,
            kept: self.kept.values().filter(|kept| kept.place != Place::Disk).map(|kept| kept.pages).sum(),
            on_disk: self.on_disk,
        }
    }

    fn place_mut(&mut self, request: RequestId) -> Option<(&mut Place, usize)> {
        if let Some(holding) = self.live.get_mut(&request) {
            return Some((&mut holding.place, holding.pages));
        }
        self.kept.get_mut(&request).map(|kept| (&mut kept.place, kept.pages))
    }
}

impl Kept {
    /// Whether it is not being put in place for anybody.
    fn is_idle(&self) -> bool {
        self.restoring.is_empty()
    }
}

/// The disk while a relief is planned.
struct Disk<'a> {
    memory: &'a Memory,
    free: usize,
    /// Kept KV on it, most worth first.
    kept: Vec<(Worth, RequestId)>,
}

impl<'a> Disk<'a> {
    fn new(memory: &'a Memory, now: Instant) -> Self {
        let mut kept = memory.by_worth(now, Place::Disk);
        kept.reverse();
        Self { memory, free: memory.limits.disk_pages.saturating_sub(memory.on_disk), kept }
    }

    /// Makes room for `pages`: at the cost of kept KV that is worth less than `worth`; for live KV at any cost.
    fn make_room(&mut self, pages: usize, worth: Option<Worth>, reliefs: &mut Vec<Relief>) -> bool {
        let lesser = |other: &Worth| worth.is_none_or(|worth| *other < worth);
        let lesser_from = self.kept.iter().position(|(other, _)| lesser(other)).unwrap_or(self.kept.len());
        let pages_of = |request: &RequestId| self.memory.kept[request].pages;
        let gain: usize = self.kept[lesser_from..].iter().map(|(_, request)| pages_of(request)).sum();
        if self.free + gain < pages {
            return false;
        }
        while self.free < pages {
            let (_, request) = self.kept.pop().expect("there is enough to gain");
            self.free += self.memory.kept[&request].pages;
            reliefs.push(Relief::Forget(request));
        }
        self.free -= pages;
        true
    }
}

/// How KV memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// All there are.
    pub capacity: usize,
    /// In use.
    pub used: usize,
    /// Of these, kept for flows whose requests have ended.
    pub kept: usize,
    /// On disk, or on the way there.
    pub on_disk: usize,
}
