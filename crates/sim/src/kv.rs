//! KV memory as it is in truth: which request's tokens are where, and how many pages that takes.
//!
//! Checked: pages in use never exceed those that there are, on disk neither; only what is there is spilled, forgotten or
//! discarded; KV of a live request is given up by `Discard` alone.

use duet_scheduler::{MemoryLimits, Source};
use duet_types::{RequestId, Tokens};
use std::collections::BTreeMap;

/// All KV.
#[derive(Clone, Debug)]
pub(crate) struct KvMemory {
    limits: MemoryLimits,
    held: BTreeMap<RequestId, Kv>,
    /// What `held` comes to, so that nobody has to count.
    total: Total,
    kept: Kept,
}

/// What became of KV in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Pages written to disk.
    pub spilled: usize,
    /// Pages read back.
    pub read: usize,
    /// Prompt tokens that requests found computed by others.
    pub reused: u64,
}

/// Sums over all KV.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    /// Pages in memory, those on the way to disk among them.
    used: usize,
    /// Pages on disk, or on the way there.
    disk: usize,
    live: usize,
}

/// The KV of one request, live or ended.
#[derive(Clone, Copy, Debug)]
struct Kv {
    /// Positions in the cache.
    tokens: Tokens,
    /// Positions that pages are taken for: those that a pass under way will write, too.
    reserved: Tokens,
    /// Positions that it was to have when it began, or that what it goes on from was to have.
    begun: Tokens,
    place: Place,
    owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Spilling,
    Disk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Live,
    Ended,
}

/// What was put in place for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) cached: Tokens,
    pub(crate) source: Option<Source>,
    /// Pages read from disk.
    pub(crate) read: usize,
}

impl KvMemory {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self { limits, held: BTreeMap::new(), total: Total::default(), kept: Kept::default() }
    }

    /// Changes what is held for a request, if anything is.
    fn update<R>(&mut self, request: RequestId, change: impl FnOnce(&mut Kv) -> R) -> Option<R> {
        let mut kv = self.remove(request)?;
        let result = change(&mut kv);
        self.insert(request, kv);
        Some(result)
    }

    fn insert(&mut self, request: RequestId, kv: Kv) {
        let before = self.held.insert(request, kv);
        assert!(before.is_none(), "{request} holds KV twice");
        let pages = self.limits.pages_for(kv.reserved, kv.begun);
        self.total.used += if kv.place == Place::Disk { 0 } else { pages };
        self.total.disk += if kv.place == Place::Memory { 0 } else { pages };
        self.total.live += usize::from(kv.owner == Owner::Live);
    }

    fn remove(&mut self, request: RequestId) -> Option<Kv> {
        let kv = self.held.remove(&request)?;
        let pages = self.limits.pages_for(kv.reserved, kv.begun);
        self.total.used -= if kv.place == Place::Disk { 0 } else { pages };
        self.total.disk -= if kv.place == Place::Memory { 0 } else { pages };
        self.total.live -= usize::from(kv.owner == Owner::Live);
        Some(kv)
    }

    /// Of what an ended request left, as many positions up to `tokens` as can be gone on from.
    pub(crate) fn kept(&self, request: RequestId, tokens: Tokens) -> Option<Tokens> {
        let kv = self.held.get(&request).filter(|kv| kv.owner == Owner::Ended)?;
        // Where windows have passed, it has an end only.
        let cut = if self.limits.fits_whole(kv.tokens.max(kv.begun)) { tokens } else { Tokens::ZERO };
        Some(if tokens >= kv.tokens { kv.tokens } else { cut })
    }

    /// Positions of a live request that are in memory.
    pub(crate) fn computed(&self, request: RequestId) -> Tokens {
        self.held.get(&request).filter(|kv| kv.place != Place::Disk).map_or(Tokens::ZERO, |kv| kv.tokens)
    }

    /// What became of KV so far.
    pub(crate) fn kept_so_far(&self) -> Kept {
        self.kept
    }

    /// Puts in place what there is: its own KV, or `shared` tokens of an ended request's; it is to have `begun` positions.
    pub(crate) fn restore(&mut self, request: RequestId, shared: Option<(RequestId, Tokens)>, begun: Tokens) -> Found {
        let found = self.placed(request, shared, begun);
        self.kept.read += found.read;
        self.kept.reused += found.source.map_or(0, |_| u64::from(found.cached.0));
        found
    }

    fn placed(&mut self, request: RequestId, shared: Option<(RequestId, Tokens)>, begun: Tokens) -> Found {
        let own = self.update(request, |own| {
            assert_eq!(own.place, Place::Disk, "{request} is restored, but its KV is not on disk");
            (own.place, own.reserved, own.begun) = (Place::Memory, own.tokens, own.begun.max(begun));
            own.tokens
        });
        if let Some(cached) = own {
            self.check();
            return Found { cached, source: None, read: self.limits.pages_of(cached) };
        }
        let kept = shared.and_then(|(of, tokens)| Some((of, self.kept(of, tokens)?, self.held[&of])));
        let before =
            kept.map_or(Tokens::ZERO, |(_, tokens, kv)| if tokens == Tokens::ZERO { tokens } else { kv.begun });
        let (cached, source, read) = match kept {
            Some((_, Tokens::ZERO, _)) | None => (Tokens::ZERO, None, 0),
            Some((of, tokens, kv)) => {
                let read = if kv.place == Place::Disk { self.limits.pages_of(tokens) } else { 0 };
                if tokens == kv.tokens {
                    self.remove(of);
                    (tokens, Some(Source::TakenOver(of)), read)
                } else {
                    (tokens, Some(Source::Forked(of)), read)
                }
            }
        };
        let (place, owner) = (Place::Memory, Owner::Live);
        self.insert(request, Kv { tokens: cached, reserved: cached, begun: begun.max(before), place, owner });
        self.check();
        Found { cached, source, read }
    }

    /// A pass will write positions up to `end`.
    pub(crate) fn reserve(&mut self, request: RequestId, end: Tokens) {
        let reserved = self.update(request, |kv| {
            assert_eq!(kv.place, Place::Memory, "the KV of {request} is not in memory, but it runs");
            kv.reserved = kv.reserved.max(end);
        });
        reserved.expect("a request that runs was restored");
        self.check();
    }

    /// Positions up to `end` are computed.
    pub(crate) fn computed_to(&mut self, request: RequestId, end: Tokens) {
        // Pages that were taken for rejected rows of a draft return.
        let updated = self.update(request, |kv| (kv.tokens, kv.reserved) = (end, end));
        updated.expect("a request that runs was restored");
    }

    /// A request ended; `keeps` says whether its KV may be of use.
    pub(crate) fn ended(&mut self, request: RequestId, keeps: Keeps) {
        let Some(kv) = self.remove(request) else { return };
        assert_ne!(kv.place, Place::Spilling, "{request} is released while it is spilled");
        if keeps == Keeps::All && kv.tokens > Tokens::ZERO {
            self.insert(request, Kv { owner: Owner::Ended, reserved: kv.tokens, ..kv });
        }
    }

    pub(crate) fn forget(&mut self, request: RequestId) {
        // A restoration under way may have taken it over.
        let Some(kv) = self.remove(request) else { return };
        assert_eq!(kv.owner, Owner::Ended, "the KV of {request}, which has not ended, is forgotten");
    }

    pub(crate) fn discard(&mut self, request: RequestId) {
        let kv = self.remove(request).unwrap_or_else(|| panic!("{request} has nothing to discard"));
        assert_eq!(kv.owner, Owner::Live, "{request} has ended and is discarded");
        assert_eq!(kv.place, Place::Memory, "what is discarded is in memory");
    }

    /// Begins to write KV to disk. Returns its pages; nothing if a restoration under way has taken it over.
    pub(crate) fn spill(&mut self, request: RequestId) -> Option<usize> {
        let tokens = self.update(request, |kv| {
            assert_eq!(kv.place, Place::Memory, "{request} is spilled twice");
            kv.place = Place::Spilling;
            kv.tokens
        })?;
        self.check();
        Some(self.limits.pages_of(tokens))
    }

    /// A spill ended. It may have been taken over or forgotten meanwhile.
    pub(crate) fn spilled(&mut self, request: RequestId, result: SpillResult) {
        let written = self.update(request, |kv| {
            if kv.place != Place::Spilling {
                return Tokens::ZERO;
            }
            let (place, written) = match result {
                SpillResult::Written => (Place::Disk, kv.tokens),
                SpillResult::Failed => (Place::Memory, Tokens::ZERO),
            };
            kv.place = place;
            written
        });
        self.kept.spilled += self.limits.pages_of(written.unwrap_or_default());
    }

    /// Pages in memory, and on disk or on the way there.
    pub(crate) fn pages(&self) -> (usize, usize) {
        (self.total.used, self.total.disk)
    }

    /// Live requests that hold KV.
    pub(crate) fn live(&self) -> usize {
        self.total.live
    }

    fn check(&self) {
        let (used, disk) = self.pages();
        assert!(used <= self.limits.pages, "{used} pages are in use, and there are {}", self.limits.pages);
        assert!(disk <= self.limits.disk_pages, "{disk} pages are on disk, which takes {}", self.limits.disk_pages);
    }
}

/// Whether an ended request's KV may be of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    All,
    Nothing,
}

/// How a spill went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpillResult {
    Written,
    Failed,
}
