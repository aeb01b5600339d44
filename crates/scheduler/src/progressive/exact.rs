//! The optimum, for few blocks and chunks: what the greedy rule is measured with. (CoordGen appendix A)
//!
//! The problem is the paper's: graphs are exchanged in place, each once, and what is minimised is the later of the end of
//! the prompt and the end of the last load. It contains 2-Partition, so this takes exponential time: a dynamic program
//! over the places, whose states are the set of switched blocks and the one that is being loaded. Of one state only those
//! pasts are kept in which no other one is ahead with both the lane and the channel: to be earlier never hurts, since from
//! then on the same can be done, no later.
//!
//! The channel decides what it loads next where a place begins and where a load ends; to wait for something in between
//! never helps. A block that is to be switched when the computation comes to it waits for its load, and nothing else is
//! loaded before: that could come after it, no later.

use super::baselines::{load, plan};
use super::blocks::Role;
use super::plan::{Exchange, Load, Plan};
use super::problem::Problem;
use super::prompt::Place;
use duet_types::Nanos;
use std::collections::BTreeMap;

/// Blocks at most, and places at most: a second or so.
const BLOCKS_MAX: usize = 8;
const PLACES_MAX: usize = 64;

/// The best plan; none where there are too many blocks or places to find it, or where graphs are not exchanged in place.
#[must_use]
pub fn exact(problem: &Problem<'_>) -> Option<Plan> {
    let (count, places) = (problem.blocks.count(), problem.places());
    if count > BLOCKS_MAX || places > PLACES_MAX || problem.exchange != Exchange::InPlace {
        return None;
    }
    let switched = (0..count).filter(|&block| problem.resident[block] == Role::Decode).map(|block| 1 << block).sum();
    let mut pasts = Pasts::default();
    let state = State { switched, loading: None };
    pasts.add(state, Past { lane: Nanos::ZERO, channel: Nanos::ZERO, loads: Vec::new() });
    for index in 0..places {
        let mut next = Pasts::default();
        for (state, past) in pasts.all() {
            Step { problem, place: Place::at(index, count), next: &mut next }.begin(state, past);
        }
        pasts = next;
    }
    let ended = pasts.all().map(|(state, past)| end(problem, state, past));
    let best = ended.min_by_key(|&(ready, lane, _)| (ready, lane))?;
    Some(plan(problem, best.2))
}

/// Which blocks have, or will have, their decode graph, and which of them is being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    switched: u32,
    loading: Option<usize>,
}

/// A way to a state.
#[derive(Clone, Debug)]
struct Past {
    /// When the lane comes to the place.
    lane: Nanos,
    /// When the channel is free.
    channel: Nanos,
    loads: Vec<Load>,
}

/// The ways to each state of which none is behind another one in everything.
#[derive(Default)]
struct Pasts(BTreeMap<State, Vec<Past>>);

/// What may be done at a place.
struct Step<'a, 'b> {
    problem: &'a Problem<'b>,
    place: Place,
    next: &'a mut Pasts,
}

impl State {
    fn has(self, block: usize) -> bool {
        self.switched >> block & 1 == 1
    }

    fn with(self, block: usize) -> Self {
        Self { switched: self.switched | 1 << block, loading: Some(block) }
    }

    /// With nothing being loaded.
    fn loaded(self) -> Self {
        Self { loading: None, ..self }
    }
}

impl Past {
    fn with(&self, problem: &Problem<'_>, block: usize, at: Place, from: Nanos) -> Self {
        let mut loads = self.loads.clone();
        loads.push(load(block, at));
        Self { lane: self.lane, channel: from + problem.blocks.cost(block, Role::Decode).load, loads }
    }
}

impl Pasts {
    fn all(&self) -> impl Iterator<Item = (State, &Past)> {
        self.0.iter().flat_map(|(&state, pasts)| pasts.iter().map(move |past| (state, past)))
    }

    fn add(&mut self, state: State, past: Past) {
        let known = self.0.entry(state).or_default();
        if known.iter().any(|other| other.lane <= past.lane && other.channel <= past.channel) {
            return;
        }
        known.retain(|other| other.lane < past.lane || other.channel < past.channel);
        known.push(past);
    }
}

impl Step<'_, '_> {
    /// The lane has come to the place.
    fn begin(&mut self, state: State, past: &Past) {
        let block = self.place.block;
        if !state.has(block) {
            self.compute(state, past, Role::Prefill);
            // Switched before it computes: the lane waits for what is being loaded, and for this.
            let mut past = past.with(self.problem, block, self.place, past.channel.max(past.lane));
            past.lane = past.channel;
            self.compute(state.with(block).loaded(), &past, Role::Decode);
        } else if state.loading == Some(block) {
            let past = Past { lane: past.lane.max(past.channel), ..past.clone() };
            self.compute(state.loaded(), &past, Role::Decode);
        } else {
            self.compute(state, past, Role::Decode);
        }
    }

    /// The block computes, from when the lane is there.
    fn compute(&mut self, state: State, past: &Past, role: Role) {
        let blocks = self.problem.blocks;
        let (context, rows) = self.problem.prompt.chunk(blocks, self.place.chunk);
        let until = past.lane + blocks.time(self.place.block, role, context, rows);
        self.load(state, past, until);
    }

    /// What the channel begins before the lane is done at `until`.
    fn load(&mut self, state: State, past: &Past, until: Nanos) {
        let from = past.channel.max(past.lane);
        let rests = if past.channel <= until { state.loaded() } else { state };
        let channel = if past.channel <= until { until } else { past.channel };
        self.next.add(rests, Past { lane: until, channel, loads: past.loads.clone() });
        if from >= until {
            return;
        }
        let may = |&block: &usize| !state.has(block) && block != self.place.block;
        let others: Vec<usize> = (0..self.problem.blocks.count()).filter(may).collect();
        for block in others {
            self.load(state.with(block), &past.with(self.problem, block, self.place, from), until);
        }
    }
}

/// All that has not been switched is loaded after the prompt: when it is ready, when the lane is done, and the loads.
fn end(problem: &Problem<'_>, state: State, past: &Past) -> (Nanos, Nanos, Vec<Load>) {
    let at = problem.prompt.end(problem.blocks);
    let left: Vec<usize> = (0..problem.blocks.count()).filter(|&block| !state.has(block)).collect();
    let is_busy = state.loading.is_some() || !left.is_empty();
    let needed: Nanos = left.iter().map(|&block| problem.blocks.cost(block, Role::Decode).load).sum();
    let switched = if is_busy { past.channel.max(past.lane) + needed } else { past.lane };
    let mut loads = past.loads.clone();
    loads.extend(left.into_iter().map(|block| load(block, at)));
    (switched.max(past.lane), past.lane, loads)
}
