//! What a pass wants of a layer's experts: they come wave by wave, as they are there.

use super::parked::{Tell, Ticket};
use super::state::{Fate, State};
use super::{ExpertReads, ExpertUnread, Shared};
use duet_kernels::fused::PresentFeeds;
use duet_moe::{ExpertId, Place};
use duet_types::{Bytes, Class};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The experts that rows of a layer go to. Whatever becomes of it, what it holds is released.
#[derive(Debug)]
pub(crate) struct Wanted {
    shared: Arc<Shared>,
    layer: usize,
    class: Class,
    /// There was no room for these yet.
    left: Vec<ExpertId>,
    /// They are held and on their way.
    coming: Vec<ExpertId>,
    /// They are held, and in memory.
    here: Vec<ExpertId>,
    present: PresentFeeds,
    in_wave: Vec<bool>,
    /// Those that were not in memory when they were asked for.
    missing: u64,
    /// If it has left.
    parked: Option<Ticket>,
}

/// What to do if none has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Wait,
    /// To leave, if what it holds meanwhile is not more than others can spare.
    Leave,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wave {
    /// Experts that were in no wave before. Those of the last one are not there any more.
    Here,
    /// None: it is to be asked again when somebody was told, after about that time.
    Coming(Duration),
    /// All have been there.
    Over,
}

impl Wanted {
    /// Asks for all of them at once.
    pub(super) fn new(
        shared: &Arc<Shared>,
        (layer, class): (usize, Class),
        rows: usize,
        experts: &[(u32, u32)],
    ) -> Self {
        let places = &shared.places[layer];
        let left: Vec<ExpertId> = experts.iter().map(|&(expert, _)| ExpertId(expert)).collect();
        let present = PresentFeeds::none(places.len(), places.first().map_or(0, |place| place.width()));
        let in_wave = vec![false; places.len()];
        let (coming, here, own) = (Vec::new(), Vec::new(), Arc::clone(shared));
        let (missing, parked) = (0, None);
        let mut wanted = Self { shared: own, layer, class, left, coming, here, present, in_wave, missing, parked };
        let mut state = shared.lock();
        state.saw(layer, rows, experts);
        wanted.ask(&mut state);
        state.forget_foreseen(layer);
        drop(state);
        shared.work.notify_all();
        wanted
    }

    /// The next wave; it is waited for, unless it is to leave.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub(crate) fn next_wave(&mut self, if_missing: IfMissing) -> Result<Wave, ExpertUnread> {
        self.put_away();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.back(&mut state);
        if self.release(&mut state) {
            shared.changed.notify_all();
        }
        loop {
            if !self.left.is_empty() {
                self.ask(&mut state);
                shared.work.notify_all();
            }
            self.collect(&state)?;
            if !self.here.is_empty() {
                return Ok(Wave::Here);
            }
            if self.left.is_empty() && self.coming.is_empty() {
                return Ok(Wave::Over);
            }
            if if_missing == IfMissing::Leave
                && self.left.is_empty()
                && let Some((ticket, about)) = state.park(self.layer, &self.coming, self.bytes())
            {
                self.parked = Some(ticket);
                return Ok(Wave::Coming(about));
            }
            let begun = Instant::now();
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waited(begun.elapsed());
        }
    }

    /// Tells somebody when the next wave is there. If it is, it is returned, for the caller to tell.
    pub(crate) fn when_ready(&self, tell: Tell) -> Option<Tell> {
        match self.parked {
            Some(ticket) => self.shared.lock().when_ready(ticket, tell),
            None => Some(tell),
        }
    }

    /// The experts of the wave.
    pub(crate) fn present(&self) -> &PresentFeeds {
        &self.present
    }

    /// Those that had to be read, or were being read already.
    pub(crate) fn reads(&self) -> ExpertReads {
        ExpertReads { experts: self.missing, bytes: Bytes(self.missing * self.bytes() as u64) }
    }

    /// Which these are, by their numbers.
    pub(crate) fn in_wave(&self) -> &[bool] {
        &self.in_wave
    }

    /// Of one of them.
    fn bytes(&self) -> usize {
        self.shared.places[self.layer].first().map_or(0, |place| place.blocks().len())
    }

    /// What it holds is as it was when it left.
    fn back(&mut self, state: &mut MutexGuard<'_, State>) {
        if let Some(ticket) = self.parked.take() {
            state.unpark(ticket, self.layer, &self.coming);
        }
    }

    fn ask(&mut self, state: &mut MutexGuard<'_, State>) {
        let without_room = state.ask((self.layer, self.class), &self.left);
        let has_room = self.left.iter().copied().filter(|expert| !without_room.contains(expert));
        let held = self.coming.len();
        self.coming.extend(has_room);
        let is_missing = |expert: &ExpertId| {
            let place = Place { layer: self.layer, expert: *expert };
            matches!(state.fate(place), Fate::Arriving)
        };
        self.missing += self.coming[held..].iter().filter(|expert| is_missing(expert)).count() as u64;
        self.left = without_room;
    }

    /// Takes what has come.
    fn collect(&mut self, state: &State) -> Result<(), ExpertUnread> {
        let mut coming = Vec::with_capacity(self.coming.len());
        let mut lost = None;
        for expert in self.coming.drain(..) {
            let place = Place { layer: self.layer, expert };
            match state.fate(place) {
                Fate::Arriving => coming.push(expert),
                Fate::Present(feed) => {
                    self.present.set(expert.index(), feed);
                    self.in_wave[expert.index()] = true;
                    self.here.push(expert);
                }
                Fate::Lost(problem) => {
                    lost = Some(self.shared.file.unread(place, problem));
                    coming.push(expert);
                }
            }
        }
        self.coming = coming;
        lost.map_or(Ok(()), Err)
    }

    /// Before anything is released: a slot that is taken from an expert must have no other user.
    fn put_away(&mut self) {
        self.present.clear();
        self.in_wave.fill(false);
    }

    /// Whether there was anything.
    fn release(&mut self, state: &mut MutexGuard<'_, State>) -> bool {
        let released = !self.here.is_empty();
        for expert in self.here.drain(..) {
            state.release(self.layer, expert);
        }
        released
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.put_away();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.back(&mut state);
        self.here.append(&mut self.coming);
        self.release(&mut state);
        shared.changed.notify_all();
    }
}
