//! Graph residency: which graph of each block a device holds that cannot hold all of them, and which is loaded next.
//! (CoordGen §3.2: progressive graph scheduling, among everything else that is served)
//!
//! [`progressive`](crate::progressive) plans for one prompt: when its decode graphs are loaded, and whether blocks that
//! an earlier answer left switched are switched back first, what that costs included. Here one plan after another is
//! followed while requests come and go:
//!
//! - the prompt that begins to be read is planned for, from whatever is resident then; if more prompts of its class wait
//!   behind it, its plan is only whether to switch back, and the last of them switches. What it would have switched is
//!   held back meanwhile, and goes on by the same plan if nobody waits any more before the plan's place;
//! - a background prompt switches nothing back while a stream of a higher class decodes;
//! - where nothing is left to be read before what decodes, all blocks are switched;
//! - decode rows of others pass blocks as they are: several passes over few rows, or one over too many. What that takes
//!   longer than the graph that suits is [charged](Residency::slowdown) to every prediction.
//!
//! Invariants: one graph is loaded at a time, and none is released while a kernel computes on it; resident graphs, those
//! that still compute, and the one that is loaded never exceed the budget; a kernel is launched on a block that has a
//! graph, or whose graph could not be loaded (then it is run elsewhere).

use crate::heg::Heg;
use crate::progressive::{Blocks, Exchange, Load, Place, Problem, ProblemError, Prompt, Role, just_in_time_within};
use duet_types::{Bytes, LaneSet, RequestId, Tokens};
use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

/// The graphs of a device that cannot hold all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GraphSet {
    /// The lanes whose kernels run on them.
    pub lanes: LaneSet,
    /// What the graphs of each block cost.
    pub blocks: Blocks,
    /// What they may take.
    pub budget: Bytes,
}

/// A graph to be loaded, by block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GraphLoad {
    /// Of which block.
    pub block: usize,
    /// Which graph.
    pub role: Role,
    /// Whether the other one goes first, or is used until this one is there.
    pub exchange: Exchange,
}

/// What comes after a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its answer: the device is to decode.
    Decode,
    /// Another prompt.
    MorePrompts,
}

/// Which graphs are there, and what is loaded next.
#[derive(Clone, Debug)]
pub(crate) struct Residency {
    set: GraphSet,
    exchange: Exchange,
    /// Nothing where a graph is being loaded in place of the other, or could not be.
    resident: Vec<Option<Role>>,
    loading: Option<GraphLoad>,
    /// A graph that was taken over from, while a kernel still computes on it.
    retiring: Option<(usize, Role)>,
    followed: Option<Followed>,
    /// What is loaded whatever comes after the followed prompt.
    loads: VecDeque<Load>,
    /// The decode graphs of its plan, after these: not while more prompts come.
    switches: VecDeque<Load>,
    /// A load has failed: nothing more is loaded until the next prompt is planned for.
    gave_up: bool,
    /// Loads that were begun since the last kernel on these graphs.
    idle_loads: usize,
}

/// The prompt that is planned for.
#[derive(Clone, Copy, Debug)]
struct Followed {
    request: RequestId,
    then: Then,
    /// The position at which the plan begins.
    from: Tokens,
}

impl GraphSet {
    /// Whether these graphs can be exchanged at all.
    ///
    /// # Errors
    /// If not even one graph of each block fits.
    pub fn check(&self) -> Result<(), ProblemError> {
        self.exchange().map(|_| ())
    }

    /// How they take each other's place, whatever is read.
    fn exchange(&self) -> Result<Exchange, ProblemError> {
        let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(1) };
        let roles = vec![Role::Prefill; self.blocks.count()];
        Ok(Problem::new(&self.blocks, prompt, &roles, self.budget)?.exchange())
    }

    /// The block of a node; the embeddings go with the first, and the head is always there.
    #[must_use]
    pub fn block_of(&self, heg: &Heg, node: usize) -> usize {
        let (layer, count) = (heg.order().layer(node), self.blocks.count());
        (0..count).rfind(|&block| layers_of(block, count, heg.layers).start <= layer).unwrap_or(0)
    }

    /// How much longer some rows take in these blocks on the graphs that are `resident` than on those that suit them. A
    /// block without one is run elsewhere, and not counted.
    #[must_use]
    pub fn slowdown(&self, resident: &[Option<Role>], rows: Tokens, blocks: RangeInclusive<usize>) -> f64 {
        let time = |block, role| self.blocks.time(block, role, Tokens::ZERO, rows.max(Tokens(1))).0 as f64;
        let (mut now, mut suits) = (0.0, 0.0);
        for (block, role) in blocks.filter_map(|block| Some((block, resident[block]?))) {
            now += time(block, role);
            suits += time(block, Role::Prefill).min(time(block, Role::Decode));
        }
        if suits > 0.0 { now / suits } else { 1.0 }
    }
}

impl Residency {
    /// All blocks have their prefill graphs.
    ///
    /// # Panics
    /// If the graphs cannot be exchanged, or there are more blocks than layers.
    pub(crate) fn new(set: GraphSet, layers: usize) -> Self {
        assert!(set.blocks.count() <= layers, "a block is a layer at least");
        Self {
            exchange: set.exchange().expect("the graphs can be exchanged"),
            resident: vec![Some(Role::Prefill); set.blocks.count()],
            loading: None,
            retiring: None,
            followed: None,
            loads: VecDeque::new(),
            switches: VecDeque::new(),
            gave_up: false,
            idle_loads: 0,
            set,
        }
    }

    /// Whether kernels on these lanes use the graphs.
    pub(crate) fn concerns(&self, lanes: LaneSet) -> bool {
        !lanes.without(self.set.lanes).contains_all(lanes)
    }

    /// The prompt that was planned for last, and what comes after it.
    pub(crate) fn follows(&self) -> Option<(RequestId, Then)> {
        self.followed.map(|followed| (followed.request, followed.then))
    }

    /// Where that plan begins in its sequence.
    pub(crate) fn followed_from(&self) -> Tokens {
        self.followed.map_or(Tokens::ZERO, |followed| followed.from)
    }

    /// A prompt goes on to be read, with this left of it. It is planned for if it is another one than before, or if the
    /// plan's place was passed while others waited; else only `then` changes.
    pub(crate) fn follow(&mut self, request: RequestId, prompt: Prompt, then: Then) {
        let chunk = prompt.context.saturating_sub(self.followed_from()).0 / self.chunk().0;
        let is_ahead = !self.gave_up && self.switches.front().is_none_or(|next| next.at.chunk >= chunk);
        match self.followed.as_mut().filter(|followed| followed.request == request) {
            Some(followed) if then == Then::MorePrompts || is_ahead => followed.then = then,
            _ => self.plan(request, prompt, then),
        }
    }

    /// Plans for a prompt in the place of what was planned before.
    fn plan(&mut self, request: RequestId, prompt: Prompt, then: Then) {
        self.followed = Some(Followed { request, then, from: prompt.context });
        self.gave_up = false;
        self.loads = self.missing().collect();
        self.switches.clear();
        let roles: Vec<Role> = (0..self.resident.len()).map(|block| self.will_be(block)).collect();
        let blocks = &self.set.blocks;
        // A longer prompt is planned for by its last chunks: before them only switching back can pay.
        let most = Tokens(blocks.rows().prefill.0.saturating_mul(chunks_planned(blocks.count())));
        let planned = Prompt { rows: prompt.rows.min(most), ..prompt };
        let Ok(problem) = Problem::new(blocks, planned, &roles, self.set.budget) else { return };
        let skipped = (prompt.rows.0 - planned.rows.0) / blocks.rows().prefill.0;
        for load in just_in_time_within(&problem, PLAN_STEPS).loads() {
            match load.role {
                Role::Prefill => self.loads.push_back(*load),
                Role::Decode => {
                    let at = Place { chunk: load.at.chunk + skipped, ..load.at };
                    self.switches.push_back(Load { at, ..*load });
                }
            }
        }
    }

    /// All blocks are to decode: nothing is left to be read.
    pub(crate) fn switch_all(&mut self) {
        self.followed = None;
        let unswitched = (0..self.resident.len()).filter(|&block| self.will_be(block) != Role::Decode);
        let switch = unswitched.map(|block| Load { block, role: Role::Decode, at: Place::START });
        self.loads = switch.collect();
        self.switches.clear();
    }

    /// A kernel on these graphs is launched.
    pub(crate) fn runs(&mut self) {
        self.idle_loads = 0;
    }

    /// What is to be loaded now, when the followed prompt has come to `place` and these blocks compute. It has begun.
    ///
    /// Plans change while kernels wait for their graphs. All blocks may be exchanged and exchanged back for that; then a
    /// kernel comes first, on whatever graphs there are, so that plans that undo each other keep nobody waiting for ever.
    pub(crate) fn begin_due(&mut self, place: Place, computes: &dyn Fn(usize) -> bool) -> Option<GraphLoad> {
        self.retiring = self.retiring.filter(|&(block, _)| computes(block));
        let is_idling = self.idle_loads >= 2 * self.resident.len();
        if self.loading.is_some() || self.retiring.is_some() || is_idling {
            return None;
        }
        while self.planned().next().is_some_and(|next| self.resident[next.block] == Some(next.role)) {
            self.drop_next();
        }
        let next = *self.planned().next().filter(|next| next.at <= place)?;
        if self.exchange == Exchange::InPlace && computes(next.block) {
            return None;
        }
        self.drop_next();
        self.idle_loads += 1;
        if self.exchange == Exchange::InPlace {
            self.resident[next.block] = None;
        }
        self.loading = Some(GraphLoad { block: next.block, role: next.role, exchange: self.exchange });
        self.loading
    }

    /// What was being loaded is there.
    ///
    /// # Panics
    /// If nothing was being loaded of this block.
    pub(crate) fn loaded(&mut self, block: usize) {
        let load = self.end_load(block);
        if let Some(old) = self.resident[block].replace(load.role) {
            self.retiring = Some((block, old));
        }
    }

    /// It could not be loaded: the block is run elsewhere until the next plan tries again.
    ///
    /// # Panics
    /// As [`Self::loaded`].
    pub(crate) fn failed(&mut self, block: usize) {
        self.end_load(block);
        self.loads.clear();
        self.switches.clear();
        self.gave_up = true;
    }

    /// Whether a kernel on this block has to wait for its graph.
    pub(crate) fn awaits(&self, block: usize) -> bool {
        self.resident[block].is_none() && self.loading.is_some_and(|load| load.block == block)
    }

    /// Whether anything is being loaded, or will be without a new plan.
    pub(crate) fn is_switching(&self) -> bool {
        self.loading.is_some() || self.planned().next().is_some()
    }

    /// Whether all blocks have their decode graphs, or will have by what is planned, as far as they can be loaded.
    pub(crate) fn ends_switched(&self) -> bool {
        let planned = |block| self.planned().rev().find(|load| load.block == block).map(|load| load.role);
        self.gave_up
            || (0..self.resident.len())
                .all(|block| planned(block).unwrap_or_else(|| self.will_be(block)) == Role::Decode)
    }

    /// How much longer some rows take in these nodes than on the graphs that suit them.
    pub(crate) fn slowdown(&self, heg: &Heg, rows: f64, nodes: &Range<usize>) -> f64 {
        self.set.slowdown(&self.resident, Tokens(rows.ceil() as u32), self.blocks_of(heg, nodes))
    }

    /// The blocks that these nodes, at least one, are in.
    pub(crate) fn blocks_of(&self, heg: &Heg, nodes: &Range<usize>) -> RangeInclusive<usize> {
        let last = nodes.end.saturating_sub(1).max(nodes.start);
        self.block_of(heg, nodes.start)..=self.block_of(heg, last)
    }

    /// The block of a node.
    pub(crate) fn block_of(&self, heg: &Heg, node: usize) -> usize {
        self.set.block_of(heg, node)
    }

    /// The node after the last one of a node's block.
    pub(crate) fn block_end(&self, heg: &Heg, node: usize) -> usize {
        let block = self.block_of(heg, node);
        heg.order().first_node(layers_of(block, self.resident.len(), heg.layers).end)
    }

    /// Rows of the graphs that prompts are read on.
    pub(crate) fn chunk(&self) -> Tokens {
        self.set.blocks.rows().prefill
    }

    /// The place after the end of any prompt.
    pub(crate) const END: Place = Place { chunk: u32::MAX, block: 0 };

    /// What is to be loaded, in order, as long as nothing changes.
    fn planned(&self) -> impl DoubleEndedIterator<Item = &Load> {
        let is_held = self.followed.is_some_and(|followed| followed.then == Then::MorePrompts);
        let switches = (!is_held).then_some(&self.switches);
        self.loads.iter().chain(switches.into_iter().flatten())
    }

    /// The first of what is planned has begun, or is not needed.
    fn drop_next(&mut self) {
        if self.loads.pop_front().is_none() {
            self.switches.pop_front();
        }
    }

    fn end_load(&mut self, block: usize) -> GraphLoad {
        let load = self.loading.take().filter(|load| load.block == block);
        load.unwrap_or_else(|| panic!("no graph of block {block} is being loaded"))
    }

    /// The graph that a block has, or will have.
    fn will_be(&self, block: usize) -> Role {
        let loading = self.loading.filter(|load| load.block == block).map(|load| load.role);
        loading.or(self.resident[block]).unwrap_or(Role::Decode)
    }

    /// What could not be loaded before is tried again first.
    fn missing(&self) -> impl Iterator<Item = Load> + '_ {
        let is_missing = |&block: &usize| self.resident[block].is_none() && !self.awaits(block);
        let missing = (0..self.resident.len()).filter(is_missing);
        missing.map(|block| Load { block, role: self.will_be(block), at: Place::START })
    }

    /// Resident graphs, those that still compute, and the one that is loaded.
    #[cfg(test)]
    fn bytes(&self) -> Bytes {
        let cost = |block, role| self.set.blocks.cost(block, role).bytes;
        let resident: Bytes =
            self.resident.iter().enumerate().filter_map(|(block, role)| role.map(|role| cost(block, role))).sum();
        let loading = self.loading.map(|load| cost(load.block, load.role)).unwrap_or_default();
        let retiring = self.retiring.map(|(block, role)| cost(block, role)).unwrap_or_default();
        resident + loading + retiring
    }
}

/// The layers of a block, of so many in a model: nearly the same number in each.
#[must_use]
pub fn layers_of(block: usize, blocks: usize, layers: usize) -> Range<usize> {
    block * layers / blocks..(block + 1) * layers / blocks
}

/// Chunks of a prompt that a plan of so many blocks looks at: with more it would take longer to find than it saves.
fn chunks_planned(blocks: usize) -> u32 {
    (PLANNED_PLACES / blocks.max(1)).clamp(4, 16) as u32
}

/// Places that a plan looks at where blocks are neither few nor many.
const PLANNED_PLACES: usize = 128;

/// Starts of a plan, times places, that are tried: a plan is made under the engine's lock, and takes 0.2 ms at most with
/// so many. With twice as many the plans are hardly better.
const PLAN_STEPS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heg::{SequenceWise, TokenWise};
    use crate::progressive::{GraphCost, Pair, PassTime};
    use duet_types::Nanos;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const LAYERS: usize = 7;

    fn heg() -> Heg {
        let linear = TokenWise { macs_per_row: 1.0, weight_bytes: 1.0, row_bytes: 0.0, routed: None };
        let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 1.0, row_bytes: 0.0, windowed: None };
        Heg { layers: LAYERS, qkv: linear, ffn: linear, attention, head: linear, experts: None, for_head: None }
    }

    /// Three blocks; a pass of 64 rows takes 80, one of 16 takes 30.
    fn residency(budget: u64) -> Residency {
        let cost = |pass, bytes| GraphCost {
            pass: PassTime { empty: Nanos(pass), per_position: Nanos(0) },
            load: Nanos(10),
            bytes: Bytes(bytes),
        };
        let rows = Pair { prefill: Tokens(64), decode: Tokens(16) };
        let blocks = Blocks::new(rows, vec![Pair { prefill: cost(80, 3), decode: cost(30, 2) }; 3]).unwrap();
        Residency::new(GraphSet { lanes: LaneSet::first(1), blocks, budget: Bytes(budget) }, LAYERS)
    }

    #[test]
    fn every_node_is_in_the_block_of_its_layer() {
        let (heg, residency) = (heg(), residency(9));
        let blocks: Vec<usize> = (0..heg.nodes()).map(|node| residency.block_of(&heg, node)).collect();
        let layers: Vec<usize> = (0..3).map(|block| layers_of(block, 3, LAYERS).len()).collect();
        assert_eq!(layers, [2, 2, 3]);
        let expected: Vec<usize> =
            [(0, 7), (1, 6), (2, 9)].iter().flat_map(|&(block, count)| vec![block; count]).collect();
        assert_eq!(blocks, expected);
        assert_eq!(residency.block_end(&heg, 0), 7);
        assert_eq!(residency.block_end(&heg, 21), heg.nodes());
    }

    /// A row on a prefill graph takes as long as all of its rows; a block whose graph is gone is run elsewhere.
    #[test]
    fn what_does_not_suit_is_charged() {
        let (heg, mut residency) = (heg(), residency(9));
        let all = 0..heg.nodes();
        assert!((residency.slowdown(&heg, 64.0, &all) - 1.0).abs() < 1e-9);
        assert!((residency.slowdown(&heg, 1.0, &all) - 80.0 / 30.0).abs() < 1e-9);
        residency.resident = vec![Some(Role::Decode), None, Some(Role::Decode)];
        assert!((residency.slowdown(&heg, 1.0, &all) - 1.0).abs() < 1e-9);
        assert!((residency.slowdown(&heg, 64.0, &all) - 120.0 / 80.0).abs() < 1e-9);
    }

    /// What is loaded for a prompt of four chunks behind whose chunk of this index others wait: which block, at which place.
    fn loads_of(others_wait_behind: Option<u32>) -> Vec<(usize, Place)> {
        let (mut residency, mut loads) = (residency(9), Vec::new());
        let places = (0..12).map(|index| Place { chunk: index / 3, block: index as usize % 3 });
        for place in places.chain([Residency::END]) {
            let read = Tokens(place.chunk.min(3) * 64);
            let left = Prompt { context: read, rows: Tokens(4 * 64).saturating_sub(read) };
            let then = if others_wait_behind == Some(place.chunk) { Then::MorePrompts } else { Then::Decode };
            residency.follow(RequestId(0), left, then);
            while let Some(load) = residency.begin_due(place, &|block| place.chunk < 4 && block == place.block) {
                loads.push((load.block, place));
                residency.loaded(load.block);
            }
        }
        loads
    }

    /// While others wait nothing is switched. When they are gone the plan goes on, or a new one where it was passed.
    #[test]
    fn a_plan_is_held_while_other_prompts_wait() {
        let planned = loads_of(None);
        let first = planned.iter().map(|(_, place)| place.chunk).min().unwrap();
        assert!(first > 0, "{planned:?}");
        assert_eq!(loads_of(Some(0)), planned);
        let held = loads_of(Some(first));
        assert!(held.iter().all(|(_, place)| place.chunk > first), "{held:?}");
        let blocks = |loads: &[(usize, Place)]| loads.iter().map(|(block, _)| *block).collect::<BTreeSet<_>>();
        assert_eq!((held.len(), blocks(&held)), (3, blocks(&planned)));
    }

    /// Two prompts that take turns, and neither is read.
    #[test]
    fn plans_that_undo_each_other_come_to_an_end() {
        let mut residency = residency(9);
        let mut loads = 0;
        for turn in 0..100 {
            let left = Prompt { context: Tokens(0), rows: Tokens(4 * 64) };
            residency.follow(RequestId(turn % 2), left, Then::Decode);
            while let Some(load) = residency.begin_due(Residency::END, &|_| false) {
                loads += 1;
                residency.loaded(load.block);
            }
        }
        assert_eq!(loads, 6, "all blocks, there and back");
        residency.runs();
        residency.follow(RequestId(2), Prompt { context: Tokens(0), rows: Tokens(4 * 64) }, Then::Decode);
        assert!(residency.begin_due(Residency::END, &|_| false).is_some(), "and on behind a kernel");
    }

    /// Whatever happens in between, graphs fit their budget, and in the end every block decodes.
    #[derive(Clone, Debug)]
    enum Happens {
        Prompt(u32, Then),
        GoesOn(u32, Then),
        SwitchAll,
        Computes(usize),
        Rests,
        Loaded,
        Fails,
    }

    fn happens() -> impl Strategy<Value = Happens> {
        let then = || prop_oneof![Just(Then::Decode), Just(Then::MorePrompts)];
        prop_oneof![
            (1..3000_u32, then()).prop_map(|(rows, then)| Happens::Prompt(rows, then)),
            (1..3000_u32, then()).prop_map(|(context, then)| Happens::GoesOn(context, then)),
            Just(Happens::SwitchAll),
            (0..3_usize).prop_map(Happens::Computes),
            Just(Happens::Rests),
            Just(Happens::Loaded),
            Just(Happens::Loaded),
            Just(Happens::Fails),
        ]
    }

    proptest! {
        #[test]
        fn graphs_fit_their_budget(budget in 9..16_u64, events in prop::collection::vec(happens(), 0..60)) {
            let mut residency = residency(budget);
            let mut computes = None;
            for (request, event) in events.into_iter().enumerate() {
                let loading = residency.loading.map(|load| load.block);
                match event {
                    Happens::Prompt(rows, then) => {
                        let prompt = Prompt { context: Tokens(0), rows: Tokens(rows) };
                        residency.follow(RequestId(request as u64), prompt, then);
                    }
                    Happens::GoesOn(context, then) => {
                        let left = Prompt { context: Tokens(context), rows: Tokens(64) };
                        if let Some((request, _)) = residency.follows() {
                            residency.follow(request, left, then);
                        }
                    }
                    Happens::SwitchAll => residency.switch_all(),
                    Happens::Computes(block) if !residency.awaits(block) => {
                        residency.runs();
                        computes = Some(block);
                    }
                    Happens::Computes(_) => {}
                    Happens::Rests => computes = None,
                    Happens::Loaded => loading.into_iter().for_each(|block| residency.loaded(block)),
                    Happens::Fails => loading.into_iter().for_each(|block| residency.failed(block)),
                }
                residency.begin_due(Residency::END, &|block| computes == Some(block));
                prop_assert!(residency.bytes() <= Bytes(budget), "{:?}", residency);
                prop_assert!(computes.is_none_or(|block| !residency.awaits(block)), "{:?}", residency);
            }
            let prompt = Prompt { context: Tokens(0), rows: Tokens(100) };
            residency.follow(RequestId(u64::MAX), prompt, Then::Decode);
            loop {
                residency.runs();
                residency.begin_due(Residency::END, &|_| false);
                match residency.loading {
                    Some(load) => residency.loaded(load.block),
                    None => break,
                }
            }
            prop_assert!(residency.resident.iter().all(|&role| role == Some(Role::Decode)), "{:?}", residency);
        }
    }
}
