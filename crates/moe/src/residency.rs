//! Residency: which groups' graphs are on the accelerator, as traffic goes. (NPUMoE §4.3)
//!
//! Groups that save most for their bytes are hot, as many as memory holds; the others are the CPU's. It starts from the
//! calibration and follows the counts of real chunks, so that a group which became popular takes the place of one that is
//! so no longer. The paper's placement is static; adapting it is ours.
//!
//! Invariants:
//! - what is hot, on its way in or on its way out never exceeds the memory, nor is it asked for twice;
//! - a group is used only from `Loaded` until its `Release`: a request never waits for a graph, the CPU computes meanwhile;
//! - groups and their capacities stay what they were: traffic changes which are loaded, and no other graphs are asked for;
//! - a group that could not be loaded is tried again, after twice as many chunks of its layer each time: what failed for a
//!   moment costs a moment, and what always fails costs next to nothing;
//! - each exchange saves time under the traffic at hand by a margin, and by more than chance makes of counts, so traffic
//!   that does not change ends in rest, however many groups there are;
//! - a chunk costs a look at its layer's groups, and once a pass all groups are sorted: hundreds of them in each of dozens
//!   of layers take less time than a launch.

use crate::worth::{chance, worth};
use crate::{Device, Group, LayerCounts, MoeShape, Times};
use duet_types::Bytes;
use std::collections::VecDeque;
use std::ops::Range;

/// A group of the model, from 0: of the first layer first, in its grouping's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A chunk was routed in a layer.
    Routed {
        /// From 0.
        layer: usize,
        /// Rows of each of its experts.
        counts: LayerCounts,
    },
    /// A group's graph is on the accelerator.
    Loaded(GroupId),
    /// It could not be loaded. It is tried again when its layer has seen some chunks.
    LoadFailed(GroupId),
    /// A group's graph is gone from the accelerator.
    Released(GroupId),
}

/// What is asked of whoever holds the graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bring a group's graph to the accelerator, and say when it is there.
    Load(GroupId),
    /// Take it from there when no launch uses it any more, and say when it is gone.
    Release(GroupId),
}

/// Where a group's rows are computed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By its graph.
    Accelerator,
    /// With the cold ones.
    Cpu,
}

/// Where groups are, and what traffic says of them.
#[derive(Clone, Debug)]
pub struct Residency {
    groups: Vec<Held>,
    layers: Vec<Layer>,
    shape: MoeShape,
    times: Times,
    memory: Bytes,
    /// By groups that are hot, on their way in or on their way out.
    taken: Bytes,
    /// Groups on their way.
    moving: usize,
    /// Chunks that were routed since it was last looked for an exchange.
    routed: usize,
    /// What room is being made for.
    incoming: Option<GroupId>,
    commands: VecDeque<Command>,
}

#[derive(Clone, Debug)]
struct Layer {
    /// Where its groups are among all.
    groups: Range<usize>,
    /// Each expert's part of its rows.
    shares: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Held {
    group: Group,
    bytes: Bytes,
    state: State,
    /// Loads that failed since one that did not.
    failures: u32,
    /// By the shares at hand.
    worth: f64,
    /// How far counts of random rows may be off that, squared.
    chance: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Cold,
    Loading,
    Hot,
    Releasing,
    /// Until its layer has seen so many chunks more.
    Failed {
        chunks: u32,
    },
}

impl State {
    /// Whether the graph takes memory.
    fn takes(self) -> bool {
        matches!(self, Self::Hot | Self::Loading | Self::Releasing)
    }

    /// Whether an answer is awaited.
    fn moves(self) -> bool {
        matches!(self, Self::Loading | Self::Releasing)
    }
}

impl Residency {
    /// Of the groups of all layers, with their calibrated counts. The first loads are asked for at once.
    #[must_use]
    pub fn new(layers: Vec<(&LayerCounts, Vec<Group>)>, shape: MoeShape, device: &Device) -> Self {
        let (mut all, mut each) = (Vec::new(), Vec::new());
        for (counts, groups) in layers {
            let first = all.len();
            all.extend(groups.into_iter().map(|group| {
                let bytes = group.bytes(shape.expert_bytes);
                Held { group, bytes, state: State::Cold, failures: 0, worth: 0.0, chance: 0.0 }
            }));
            each.push(Layer { groups: first..all.len(), shares: counts.shares() });
        }
        let mut residency = Self {
            groups: all,
            layers: each,
            shape,
            times: device.times,
            memory: device.resident_bytes_max,
            taken: Bytes::ZERO,
            moving: 0,
            routed: 0,
            incoming: None,
            commands: VecDeque::new(),
        };
        (0..residency.layers.len()).for_each(|layer| residency.appraise(layer));
        residency.go_on();
        residency
    }

    /// Takes an event in. What does not fit where a group is has no effect, nor has a layer that does not exist.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Routed { layer, counts } => {
                self.observe(layer, &counts);
                self.routed += 1;
                // Once a pass is often enough to follow traffic.
                if self.routed < self.layers.len() {
                    return;
                }
            }
            Event::Loaded(group) => self.turn(group, State::Loading, |held| {
                held.failures = 0;
                State::Hot
            }),
            Event::LoadFailed(group) => self.turn(group, State::Loading, |held| {
                let chunks = RETRY_FIRST.saturating_mul(1 << held.failures.min(RETRY_DOUBLED));
                held.failures = held.failures.saturating_add(1);
                State::Failed { chunks }
            }),
            Event::Released(group) => self.turn(group, State::Releasing, |_| State::Cold),
        }
        self.go_on();
    }

    /// The next command. Drain it until none is left before the next event.
    pub fn poll(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Where a group's rows go now. A group that does not exist is the CPU's.
    #[must_use]
    pub fn place(&self, group: GroupId) -> Place {
        match self.groups.get(group.0 as usize).map(|held| held.state) {
            Some(State::Hot) => Place::Accelerator,
            _ => Place::Cpu,
        }
    }

    /// The groups of a layer that are on the accelerator: what [`crate::Dispatch`] takes.
    pub fn hot(&self, layer: usize) -> impl Iterator<Item = (GroupId, &Group)> {
        let range = self.layers.get(layer).map_or(0..0, |layer| layer.groups.clone());
        let of_layer = range.map(|index| (GroupId(index as u32), &self.groups[index]));
        of_layer.filter(|(_, held)| held.state == State::Hot).map(|(id, held)| (id, &held.group))
    }

    /// Bytes that are taken: hot, on their way in or on their way out.
    #[must_use]
    pub fn taken(&self) -> Bytes {
        self.taken
    }

    /// Shares follow what was routed: chunks of [`MEMORY`] times the usual rows ago count a third.
    fn observe(&mut self, layer: usize, counts: &LayerCounts) {
        let rows = counts.total().0 as f64;
        let of_layer = self.layers.get_mut(layer).map(|layer| &mut layer.shares);
        let Some(shares) = of_layer.filter(|shares| shares.len() == counts.loads().len() && rows > 0.0) else { return };
        let remembered = MEMORY * f64::from(self.shape.chunk.0) * f64::from(self.shape.chosen);
        let new = rows / (rows + remembered);
        for (share, observed) in shares.iter_mut().zip(counts.shares()) {
            *share += new * (observed - *share);
        }
        self.appraise(layer);
        self.forgive(layer);
    }

    fn appraise(&mut self, layer: usize) {
        let Layer { groups, shares } = &self.layers[layer];
        for held in &mut self.groups[groups.clone()] {
            held.worth = worth(&held.group, shares, &self.shape, &self.times);
            held.chance = chance(&held.group, shares, &self.shape, &self.times) / CHUNKS_COUNTED;
        }
    }

    fn turn(&mut self, group: GroupId, from: State, to: impl FnOnce(&mut Held) -> State) {
        if let Some(held) = self.groups.get_mut(group.0 as usize).filter(|held| held.state == from) {
            let state = to(held);
            self.set(group, state);
        }
    }

    /// The only way that a group changes its state: what is taken and moving is counted.
    fn set(&mut self, group: GroupId, state: State) {
        let held = &mut self.groups[group.0 as usize];
        let before = std::mem::replace(&mut held.state, state);
        match (before.takes(), state.takes()) {
            (false, true) => self.taken = Bytes(self.taken.0.saturating_add(held.bytes.0)),
            (true, false) => self.taken = self.taken.saturating_sub(held.bytes),
            _ => {}
        }
        self.moving += usize::from(state.moves());
        self.moving -= usize::from(before.moves());
    }

    /// A layer has seen a chunk: of its groups that could not be loaded, some have waited long enough.
    fn forgive(&mut self, layer: usize) {
        for index in self.layers.get(layer).map_or(0..0, |layer| layer.groups.clone()) {
            match self.groups[index].state {
                State::Failed { chunks: 0 | 1 } => self.set(GroupId(index as u32), State::Cold),
                State::Failed { chunks } => self.set(GroupId(index as u32), State::Failed { chunks: chunks - 1 }),
                _ => {}
            }
        }
    }

    /// Ends an exchange whose room is there; otherwise takes in what has room, lets go what only costs, or begins one.
    fn go_on(&mut self) {
        self.routed = 0;
        if let Some(incoming) = self.incoming {
            if self.has_room(incoming) {
                self.incoming = None;
                self.load(incoming);
            }
            return;
        }
        let waiting = self.waiting();
        for &group in &waiting {
            if self.has_room(group) {
                self.load(group);
            }
        }
        let costly = |held: &Held| held.state == State::Hot && held.worth < 0.0;
        for group in self.ids(costly) {
            self.release(group);
        }
        // While any is on its way, none of them has room.
        if self.moving == 0 {
            self.begin_exchange(&waiting);
        }
    }

    /// One at a time: the best of the waiting whose victims are worth less than it by a margin.
    fn begin_exchange(&mut self, waiting: &[GroupId]) {
        if waiting.is_empty() {
            return;
        }
        let mut hot = self.ids(|held| held.state == State::Hot);
        hot.sort_by(|a, b| self.density(*a).total_cmp(&self.density(*b)));
        for &group in waiting.iter().take(CANDIDATES) {
            if let Some(victims) = self.victims(group, &hot) {
                self.incoming = Some(group);
                victims.into_iter().for_each(|victim| self.release(victim));
                return;
            }
        }
    }

    /// Of the hot ones, least worth for their bytes first, those that make room for a group, if that pays.
    fn victims(&self, group: GroupId, hot: &[GroupId]) -> Option<Vec<GroupId>> {
        let incoming = &self.groups[group.0 as usize];
        let (mut room, mut victims) = (self.memory.saturating_sub(self.taken), Vec::new());
        for &victim in hot {
            if room >= incoming.bytes {
                break;
            }
            room += self.groups[victim.0 as usize].bytes;
            victims.push(victim);
        }
        // One that is large may have made room for all; then the small ones before it stay.
        for at in (0..victims.len()).rev() {
            let bytes = self.groups[victims[at].0 as usize].bytes;
            if room.saturating_sub(bytes) >= incoming.bytes {
                room -= bytes;
                victims.remove(at);
            }
        }
        (room >= incoming.bytes && self.pays(incoming, &victims)).then_some(victims)
    }

    /// Whether a group saves so much more than others that neither a little nor chance makes the difference.
    fn pays(&self, incoming: &Held, victims: &[GroupId]) -> bool {
        let victims = || victims.iter().map(|victim| &self.groups[victim.0 as usize]);
        let lost: f64 = victims().map(|held| held.worth.max(0.0)).sum();
        let chance = incoming.chance + victims().map(|held| held.chance).sum::<f64>();
        incoming.worth > MARGIN * lost && incoming.worth > lost + DEVIATIONS * chance.sqrt()
    }

    /// Cold groups that are worth loading and are not larger than all memory, best for their bytes first.
    fn waiting(&self) -> Vec<GroupId> {
        let enough = self.times.launch.0 as f64 * MARGIN_OF_LAUNCH;
        let waits = |held: &Held| held.state == State::Cold && held.worth > enough && held.bytes <= self.memory;
        let mut waiting = self.ids(waits);
        waiting.sort_by(|a, b| self.density(*b).total_cmp(&self.density(*a)));
        waiting
    }

    fn ids(&self, which: impl Fn(&Held) -> bool) -> Vec<GroupId> {
        let found = self.groups.iter().enumerate().filter(|(_, held)| which(held));
        found.map(|(index, _)| GroupId(index as u32)).collect()
    }

    fn density(&self, group: GroupId) -> f64 {
        let held = &self.groups[group.0 as usize];
        held.worth / held.bytes.0.max(1) as f64
    }

    fn has_room(&self, group: GroupId) -> bool {
        self.groups[group.0 as usize].bytes <= self.memory.saturating_sub(self.taken)
    }

    fn load(&mut self, group: GroupId) {
        self.set(group, State::Loading);
        self.commands.push_back(Command::Load(group));
    }

    fn release(&mut self, group: GroupId) {
        self.set(group, State::Releasing);
        self.commands.push_back(Command::Release(group));
    }
}

/// Chunks that shares remember: fewer follow a prompt's own topic and exchange graphs for it, more miss that a
/// conversation went elsewhere.
const MEMORY: f64 = 16.0;
/// How many times what it puts out a group must be worth: less would exchange for noise.
const MARGIN: f64 = 1.25;
/// Chunks whose counts shares amount to, when each weighs less than the next.
const CHUNKS_COUNTED: f64 = 2.0 * MEMORY + 1.0;
/// How many standard deviations of what chance makes of counts an exchange must save: the best of hundreds that wait and the
/// worst of dozens that are hot are three off each.
const DEVIATIONS: f64 = 5.0;
/// Part of a launch that a group must save to come in; it goes out when it saves nothing.
const MARGIN_OF_LAUNCH: f64 = 0.25;
/// Chunks after which a group is tried again that could not be loaded: a prompt's worth.
const RETRY_FIRST: u32 = 16;
/// How often that is doubled: a group that never loads is tried every thousand chunks.
const RETRY_DOUBLED: u32 = 6;
/// Groups that are tried for an exchange: each looks at all hot ones.
const CANDIDATES: usize = 8;

#[cfg(test)]
mod scale;
#[cfg(test)]
mod tests;
