//! What a plan takes, as predicted: its steps in virtual time.
//!
//! The steps are [`Progress`]'s own; here is only a clock for one lane and one channel that loads. The channel loads
//! beside the lane and takes nothing from it.

use super::blocks::{Blocks, Role};
use super::plan::{Load, Plan};
use super::progress::{Progress, Todo};
use super::prompt::Place;
use duet_types::{Bytes, Instant, Nanos};

/// What a plan takes. Time begins with its prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When the last row has passed the last block.
    pub prefilled: Instant,
    /// When the last graph is loaded; the beginning, if none is.
    pub switched: Instant,
    /// How long the lane waited for graphs before [`Self::prefilled`].
    pub stalled: Nanos,
    /// The most that graphs took at once.
    pub peak: Bytes,
    /// What was computed, in order.
    pub computed: Vec<Computed>,
    /// What was loaded, in order.
    pub loaded: Vec<Loaded>,
}

/// A chunk that passed a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computed {
    /// Which chunk, and which block.
    pub place: Place,
    /// On which graph.
    pub role: Role,
    /// From when.
    pub from: Instant,
    /// Until when.
    pub until: Instant,
}

/// A graph that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What the plan said.
    pub load: Load,
    /// From when.
    pub from: Instant,
    /// Until when.
    pub until: Instant,
}

/// The steps of a plan on their way, in virtual time.
struct Clock<'a> {
    blocks: &'a Blocks,
    plan: &'a Plan,
    now: Instant,
    lane: Option<Instant>,
    channel: Option<Instant>,
    progress: Progress,
}

/// What begins at one moment.
struct Begun {
    computed: Option<Computed>,
    loaded: Option<Loaded>,
}

impl Timeline {
    /// Follows a plan. O(steps × blocks), for [`Self::peak`].
    #[must_use]
    pub fn of(plan: &Plan, blocks: &Blocks) -> Self {
        let mut timeline = Self::default();
        let mut clock = Clock::new(plan, blocks);
        while !clock.progress.is_done() {
            let Begun { computed, loaded } = clock.begin();
            timeline.computed.extend(computed);
            timeline.loaded.extend(loaded);
            timeline.peak = timeline.peak.max(clock.progress.bytes(blocks));
            clock.advance();
        }
        let computing: Nanos = timeline.computed.iter().map(|done| done.until - done.from).sum();
        let prefilled = timeline.computed.last().map_or(Instant::default(), |done| done.until);
        let switched = timeline.loaded.last().map_or(Instant::default(), |done| done.until);
        let stalled = Nanos(prefilled.0).saturating_sub(computing);
        Self { prefilled, switched, stalled, ..timeline }
    }

    /// When decoding may begin: the paper's objective, the later of the end of the prompt and the end of the last load.
    #[must_use]
    pub fn ready(&self) -> Instant {
        self.prefilled.max(self.switched)
    }
}

/// [`Timeline::ready`] and [`Timeline::prefilled`] of a plan, and nothing else of it: what planners compare. O(steps).
pub(super) fn readiness(plan: &Plan, blocks: &Blocks) -> (Instant, Instant) {
    let (mut prefilled, mut switched) = (Instant::default(), Instant::default());
    let mut clock = Clock::new(plan, blocks);
    while !clock.progress.is_done() {
        let Begun { computed, loaded } = clock.begin();
        prefilled = computed.map_or(prefilled, |computed| computed.until);
        switched = loaded.map_or(switched, |loaded| loaded.until);
        clock.advance();
    }
    (prefilled.max(switched), prefilled)
}

impl<'a> Clock<'a> {
    fn new(plan: &'a Plan, blocks: &'a Blocks) -> Self {
        let progress = Progress::new(plan.clone(), blocks);
        Self { blocks, plan, now: Instant::default(), lane: None, channel: None, progress }
    }

    /// Begins all that can begin now.
    fn begin(&mut self) -> Begun {
        let mut begun = Begun { computed: None, loaded: None };
        if self.channel.is_none() && self.progress.due().is_some() {
            let load = self.progress.begin_load();
            let until = self.now + self.blocks.cost(load.block, load.role).load;
            self.channel = Some(until);
            begun.loaded = Some(Loaded { load, from: self.now, until });
        }
        if self.lane.is_none() && matches!(self.progress.todo(self.blocks), Todo::Compute { .. }) {
            let (place, role) = self.progress.begin_compute(self.blocks);
            let (context, rows) = self.plan.prompt.chunk(self.blocks, place.chunk);
            let until = self.now + self.blocks.time(place.block, role, context, rows);
            self.lane = Some(until);
            begun.computed = Some(Computed { place, role, from: self.now, until });
        }
        begun
    }

    /// Goes to the next end of something; of equals the load's, so that the block after it finds its graph.
    fn advance(&mut self) {
        match (self.channel, self.lane) {
            (Some(load), lane) if lane.is_none_or(|lane| load <= lane) => {
                self.now = load;
                self.channel = None;
                self.progress.loaded();
            }
            (_, Some(lane)) => {
                self.now = lane;
                self.lane = None;
                self.progress.computed();
            }
            // A plan whose block waits for a load that is not in it would wait for ever; none of the planners makes one.
            (None, None) => unreachable!("a plan goes on"),
            (Some(_), None) => unreachable!("a load without a lane is the first case"),
        }
    }
}
