//! What a plan takes, as predicted: its steps in virtual time.
//!
//! The steps are [`Progress`]'s own; here is only a clock for one lane and one channel that loads. The channel loads
//! beside the lane and takes nothing from it. O(places + loads).

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
    timeline: Timeline,
}

impl Timeline {
    /// Follows a plan.
    #[must_use]
    pub fn of(plan: &Plan, blocks: &Blocks) -> Self {
        let progress = Progress::new(plan.clone(), blocks);
        let timeline = Self::default();
        let mut clock = Clock { blocks, plan, now: Instant::default(), lane: None, channel: None, progress, timeline };
        while !clock.progress.is_done() {
            clock.begin();
            clock.advance();
        }
        let computing: Nanos = clock.timeline.computed.iter().map(|done| done.until - done.from).sum();
        let prefilled = clock.timeline.computed.last().map_or(Instant::default(), |done| done.until);
        let switched = clock.timeline.loaded.last().map_or(Instant::default(), |done| done.until);
        let stalled = Nanos(prefilled.0).saturating_sub(computing);
        Self { prefilled, switched, stalled, ..clock.timeline }
    }

    /// When decoding may begin: the paper's objective, the later of the end of the prompt and the end of the last load.
    #[must_use]
    pub fn ready(&self) -> Instant {
        self.prefilled.max(self.switched)
    }
}

impl Clock<'_> {
    /// Begins all that can begin now.
    fn begin(&mut self) {
        if self.channel.is_none() && self.progress.due().is_some() {
            let load = self.progress.begin_load();
            let until = self.now + self.blocks.cost(load.block, load.role).load;
            self.channel = Some(until);
            self.timeline.loaded.push(Loaded { load, from: self.now, until });
        }
        if self.lane.is_none() && matches!(self.progress.todo(self.blocks), Todo::Compute { .. }) {
            let (place, role) = self.progress.begin_compute(self.blocks);
            let (context, rows) = self.plan.prompt.chunk(self.blocks, place.chunk);
            let until = self.now + self.blocks.time(place.block, role, context, rows);
            self.lane = Some(until);
            self.timeline.computed.push(Computed { place, role, from: self.now, until });
        }
        self.timeline.peak = self.timeline.peak.max(self.progress.bytes(self.blocks));
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
