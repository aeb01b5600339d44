//! Following a plan in real time: a lane that computes, and a thread beside it that loads.
//!
//! What may begin is [`Progress`]'s to say; here is only what real graphs add: waiting, releasing, and the time that
//! everything took, in the form in which it was predicted ([`Timeline`]).
//!
//! Invariants: a graph that was released is gone before the next one is loaded; nothing is loaded or dropped under the
//! lock or by the lane, so that it never waits for a load that it does not need.

use super::block_graphs::BlockGraphs;
use super::error::SwitchingError;
use super::loaded::Loaded;
use super::shelf::Shelf;
use duet_scheduler::progressive::{
    Blocks, Computed, Load, Loaded as LoadDone, Place, Plan, Progress, Role, Timeline, Todo,
};
use duet_types::{Instant, Nanos, Tokens};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A plan on its way, with its graphs.
#[derive(Debug)]
pub struct Exchange<'a> {
    shelf: &'a Shelf,
    blocks: &'a Blocks,
    /// Of the prompt.
    rows: Tokens,
    start: std::time::Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    progress: Progress,
    loaded: Loaded,
    /// Released by the lane, which has no time to drop them.
    garbage: Vec<Arc<BlockGraphs>>,
    /// Loads that have not begun.
    left: usize,
    /// What the lane computes, since when.
    lane: Option<(Place, Role, Instant)>,
    timeline: Timeline,
    /// Either thread has failed.
    is_over: bool,
}

impl<'a> Exchange<'a> {
    /// Begins to follow a plan, for which its initial graphs are `loaded`. Its clock begins now.
    #[must_use]
    pub fn new(shelf: &'a Shelf, blocks: &'a Blocks, plan: Plan, loaded: Loaded) -> Self {
        let (left, rows) = (plan.loads().len(), plan.prompt().rows);
        let progress = Progress::new(plan, blocks);
        let timeline = Timeline { peak: progress.bytes(blocks), ..Timeline::default() };
        let state = State { progress, loaded, garbage: Vec::new(), left, lane: None, timeline, is_over: false };
        let (start, state, changed) = (std::time::Instant::now(), Mutex::new(state), Condvar::new());
        Self { shelf, blocks, rows, start, state, changed }
    }

    /// Does `work`, which is to take the whole prompt through the blocks, while a thread beside it loads what is due. Returns
    /// when all is loaded, with what is loaded now and what took how long.
    ///
    /// # Errors
    /// Those of `work`, and of loading. Graphs are released then.
    pub fn run<T>(
        self,
        work: impl FnOnce(&Self) -> Result<T, SwitchingError>,
    ) -> Result<(T, Loaded, Timeline), SwitchingError> {
        let (worked, loading) = std::thread::scope(|scope| {
            let loader = scope.spawn(|| self.watched(|| self.load_all()));
            let worked = self.watched(|| work(&self).and_then(|worked| self.check_end().map(|()| worked)));
            (worked, loader.join().unwrap_or(Err(SwitchingError::Beside)))
        });
        // The one that failed first has the reason.
        let worked = match (worked, loading) {
            (Ok(worked), Ok(())) => worked,
            (Err(SwitchingError::Beside) | Ok(_), Err(error)) | (Err(error), _) => return Err(error),
        };
        let State { loaded, mut timeline, .. } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        timeline.switched = timeline.loaded.last().map_or(Instant::default(), |done| done.until);
        Ok((worked, loaded, timeline))
    }

    /// What graphs are loaded from.
    #[must_use]
    pub fn shelf(&self) -> &'a Shelf {
        self.shelf
    }

    /// The blocks that were planned for.
    #[must_use]
    pub fn blocks(&self) -> &'a Blocks {
        self.blocks
    }

    /// Rows of the prompt that was planned for.
    #[must_use]
    pub fn rows(&self) -> Tokens {
        self.rows
    }

    /// How long the plan has been followed.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::default() + self.start.elapsed().into()
    }

    /// Waits until the next block's graph is there, and takes it: the chunk is about to pass it.
    ///
    /// # Errors
    /// If loading has failed, or all chunks have passed all blocks.
    pub fn enter(&self) -> Result<Arc<BlockGraphs>, SwitchingError> {
        let from = self.now();
        let mut state = self.state();
        loop {
            if state.is_over {
                return Err(SwitchingError::Beside);
            }
            match state.progress.todo(self.blocks) {
                Todo::Await(_) => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Todo::Nothing => return Err(SwitchingError::OtherPrompt),
                Todo::Compute { .. } => break,
            }
        }
        let (place, role) = state.progress.begin_compute(self.blocks);
        let now = self.now();
        state.timeline.stalled += now - from;
        state.lane = Some((place, role, now));
        state.loaded.get(place.block, role)
    }

    /// The chunk has passed the block that was entered.
    ///
    /// # Panics
    /// If none was.
    pub fn leave(&self) {
        let until = self.now();
        let mut state = self.state();
        let (place, role, from) = state.lane.take().expect("a block was entered");
        state.progress.computed();
        state.timeline.computed.push(Computed { place, role, from, until });
        state.timeline.prefilled = until;
        let released = state.released();
        state.garbage.extend(released);
        self.changed.notify_all();
    }

    /// Waits until all graphs are exchanged, when the prompt has passed all blocks. How long that took.
    ///
    /// # Errors
    /// If loading has failed, or the prompt has not.
    pub fn wait_switched(&self) -> Result<Nanos, SwitchingError> {
        let from = self.now();
        self.check_end()?;
        let mut state = self.state();
        while !state.progress.is_done() {
            if state.is_over {
                return Err(SwitchingError::Beside);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(self.now() - from)
    }

    /// Loads of later places would never be due.
    fn check_end(&self) -> Result<(), SwitchingError> {
        let is_read = self.state().progress.todo(self.blocks) == Todo::Nothing;
        if is_read { Ok(()) } else { Err(SwitchingError::OtherPrompt) }
    }

    /// Loads what is due until nothing is left.
    fn load_all(&self) -> Result<(), SwitchingError> {
        while let Some(load) = self.next_load() {
            let from = self.now();
            let graphs = Arc::new(self.shelf.load(load.block, self.blocks.rows().of(load.role))?);
            let mut state = self.state();
            let done = LoadDone { load, from, until: self.now() };
            state.timeline.loaded.push(done);
            state.loaded.put(load.block, load.role, graphs);
            state.progress.loaded();
            state.note_peak(self.blocks);
            self.changed.notify_all();
            let released = state.released();
            drop(state);
            drop(released);
        }
        Ok(())
    }

    /// Waits for a load that is due, and releases what it takes the place of. None if nothing is left.
    fn next_load(&self) -> Option<Load> {
        let mut state = self.state();
        while state.left > 0 && !state.is_over {
            if state.progress.due().is_some() {
                state.left -= 1;
                let load = state.progress.begin_load();
                state.note_peak(self.blocks);
                let released = (state.released(), std::mem::take(&mut state.garbage));
                drop(state);
                drop(released);
                return Some(load);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Does something; if it fails or panics, whoever waits for it is told.
    fn watched<T>(&self, work: impl FnOnce() -> Result<T, SwitchingError>) -> Result<T, SwitchingError> {
        let watch = Watch(self);
        let result = work()?;
        std::mem::forget(watch);
        Ok(result)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note_peak(&mut self, blocks: &Blocks) {
        self.timeline.peak = self.timeline.peak.max(self.progress.bytes(blocks));
    }

    fn released(&mut self) -> Vec<Arc<BlockGraphs>> {
        self.loaded.take_released(self.progress.resident())
    }
}

/// Ends the run when it is dropped.
struct Watch<'a, 'b>(&'a Exchange<'b>);

impl Drop for Watch<'_, '_> {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.changed.notify_all();
    }
}
