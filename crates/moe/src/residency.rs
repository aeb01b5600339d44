//! Residency: which groups' graphs are on the accelerator, as traffic goes. (NPUMoE §4.3)
//!
//! Groups that save most for their bytes are hot, as many as memory holds; the others are the CPU's. It starts from the
//! calibration and follows the counts of real chunks, so that a group which became popular takes the place of one that is
//! so no longer. The paper's placement is static; adapting it is ours.
//!
//! Invariants:
//! - what is hot, on its way in or on its way out never exceeds the memory, nor is it asked for twice;
//! - a group is used only from `Loaded` until its `Release`: a request never waits for a graph, the CPU computes meanwhile;
//! - groups and their capacities stay what they were: nothing is compiled because traffic changed, only loaded;
//! - a group that could not be loaded is tried again, after twice as many chunks of its layer each time: what failed for a
//!   moment costs a moment, and what always fails costs next to nothing;
//! - each exchange saves time under the traffic at hand by a margin, so traffic that does not change ends in rest.

use crate::worth::worth;
use crate::{Device, Group, LayerCounts, MoeShape, Times};
use duet_types::Bytes;
use std::collections::VecDeque;

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
    /// For each layer, each expert's part of its rows.
    shares: Vec<Vec<f64>>,
    shape: MoeShape,
    times: Times,
    memory: Bytes,
    /// What room is being made for.
    incoming: Option<GroupId>,
    commands: VecDeque<Command>,
}

#[derive(Clone, Debug)]
struct Held {
    layer: usize,
    group: Group,
    bytes: Bytes,
    state: State,
    /// Loads that failed since one that did not.
    failures: u32,
    /// By the shares at hand.
    worth: f64,
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

impl Residency {
    /// Of the groups of all layers, with their calibrated counts. The first loads are asked for at once.
    #[must_use]
    pub fn new(layers: Vec<(&LayerCounts, Vec<Group>)>, shape: MoeShape, device: &Device) -> Self {
        let shares = layers.iter().map(|(counts, _)| counts.shares()).collect();
        let groups = layers.into_iter().enumerate().flat_map(|(layer, (_, groups))| {
            groups.into_iter().map(move |group| {
                let bytes = group.bytes(shape.expert_bytes);
                Held { layer, group, bytes, state: State::Cold, failures: 0, worth: 0.0 }
            })
        });
        let mut residency = Self {
            groups: groups.collect(),
            shares,
            shape,
            times: device.times,
            memory: device.resident_bytes_max,
            incoming: None,
            commands: VecDeque::new(),
        };
        (0..residency.shares.len()).for_each(|layer| residency.appraise(layer));
        residency.go_on();
        residency
    }

    /// Takes an event in. What does not fit where a group is has no effect, nor has a layer that does not exist.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Routed { layer, counts } => self.observe(layer, &counts),
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
        let of_layer = self.groups.iter().enumerate().filter(move |(_, held)| held.layer == layer);
        of_layer.filter(|(_, held)| held.state == State::Hot).map(|(index, held)| (GroupId(index as u32), &held.group))
    }

    /// Bytes that are taken: hot, on their way in or on their way out.
    #[must_use]
    pub fn taken(&self) -> Bytes {
        let takes = |held: &&Held| matches!(held.state, State::Hot | State::Loading | State::Releasing);
        Bytes(self.groups.iter().filter(takes).fold(0, |sum, held| sum.saturating_add(held.bytes.0)))
    }

    /// Shares follow what was routed: chunks of [`MEMORY`] times the usual rows ago count a third.
    fn observe(&mut self, layer: usize, counts: &LayerCounts) {
        let rows = counts.total().0 as f64;
        let Some(shares) = self.shares.get_mut(layer).filter(|shares| shares.len() == counts.loads().len()) else {
            return;
        };
        if rows == 0.0 {
            return;
        }
        let remembered = MEMORY * f64::from(self.shape.chunk.0) * f64::from(self.shape.chosen);
        let new = rows / (rows + remembered);
        for (share, observed) in shares.iter_mut().zip(counts.shares()) {
            *share += new * (observed - *share);
        }
        self.appraise(layer);
        self.forgive(layer);
    }

    fn appraise(&mut self, layer: usize) {
        for held in self.groups.iter_mut().filter(|held| held.layer == layer) {
            held.worth = worth(&held.group, &self.shares[layer], &self.shape, &self.times);
        }
    }

    fn turn(&mut self, group: GroupId, from: State, to: impl FnOnce(&mut Held) -> State) {
        if let Some(held) = self.groups.get_mut(group.0 as usize).filter(|held| held.state == from) {
            held.state = to(held);
        }
    }

    /// A layer has seen a chunk: of its groups that could not be loaded, some have waited long enough.
    fn forgive(&mut self, layer: usize) {
        for held in self.groups.iter_mut().filter(|held| held.layer == layer) {
            held.state = match held.state {
                State::Failed { chunks: 0 | 1 } => State::Cold,
                State::Failed { chunks } => State::Failed { chunks: chunks - 1 },
                other => other,
            };
        }
    }

    /// Ends an exchange whose room is there; otherwise takes in what has room, lets go what only costs, or begins one.
    fn go_on(&mut self) {
        if let Some(incoming) = self.incoming {
            if self.has_room(incoming) {
                self.incoming = None;
                self.load(incoming);
            }
            return;
        }
        for group in self.waiting() {
            if self.has_room(group) {
                self.load(group);
            }
        }
        let costly = |held: &Held| held.state == State::Hot && held.worth < 0.0;
        for group in self.ids(costly) {
            self.release(group);
        }
        if !self.groups.iter().any(|held| matches!(held.state, State::Loading | State::Releasing)) {
            self.begin_exchange();
        }
    }

    /// One at a time: the best of the waiting whose victims are worth less than it by a margin.
    fn begin_exchange(&mut self) {
        for group in self.waiting().into_iter().take(CANDIDATES) {
            if let Some(victims) = self.victims(group) {
                self.incoming = Some(group);
                victims.into_iter().for_each(|victim| self.release(victim));
                return;
            }
        }
    }

    /// The hot ones of least worth for their bytes that make room for a group, if that pays.
    fn victims(&self, group: GroupId) -> Option<Vec<GroupId>> {
        let incoming = &self.groups[group.0 as usize];
        let mut hot = self.ids(|held| held.state == State::Hot);
        hot.sort_by(|a, b| self.density(*a).total_cmp(&self.density(*b)));
        let (mut room, mut lost, mut victims) = (self.memory.saturating_sub(self.taken()), 0.0, Vec::new());
        for victim in hot {
            if room >= incoming.bytes {
                break;
            }
            let held = &self.groups[victim.0 as usize];
            room += held.bytes;
            lost += held.worth.max(0.0);
            victims.push(victim);
        }
        // One that is large may have made room for all; then the small ones before it stay.
        for at in (0..victims.len()).rev() {
            let held = &self.groups[victims[at].0 as usize];
            if room.saturating_sub(held.bytes) >= incoming.bytes {
                room -= held.bytes;
                lost -= held.worth.max(0.0);
                victims.remove(at);
            }
        }
        (room >= incoming.bytes && incoming.worth > MARGIN * lost).then_some(victims)
    }

    /// Cold groups that are worth loading, best for their bytes first.
    fn waiting(&self) -> Vec<GroupId> {
        let enough = self.times.launch.0 as f64 * MARGIN_OF_LAUNCH;
        let mut waiting = self.ids(|held| held.state == State::Cold && held.worth > enough);
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
        self.groups[group.0 as usize].bytes <= self.memory.saturating_sub(self.taken())
    }

    fn load(&mut self, group: GroupId) {
        self.groups[group.0 as usize].state = State::Loading;
        self.commands.push_back(Command::Load(group));
    }

    fn release(&mut self, group: GroupId) {
        self.groups[group.0 as usize].state = State::Releasing;
        self.commands.push_back(Command::Release(group));
    }
}

/// Chunks that shares remember: fewer follow a prompt's own topic and exchange graphs for it, more miss that a
/// conversation went elsewhere.
const MEMORY: f64 = 16.0;
/// How many times what it puts out a group must be worth: less would exchange for noise.
const MARGIN: f64 = 1.25;
/// Part of a launch that a group must save to come in; it goes out when it saves nothing.
const MARGIN_OF_LAUNCH: f64 = 0.25;
/// Chunks after which a group is tried again that could not be loaded: a prompt's worth.
const RETRY_FIRST: u32 = 16;
/// How often that is doubled: a group that never loads is tried every thousand chunks.
const RETRY_DOUBLED: u32 = 6;
/// Groups that are tried for an exchange: each looks at all hot ones.
const CANDIDATES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{counts, device, shape};
    use crate::{Grouping, Load, Provision, Tiers};
    use proptest::prelude::*;

    fn layer(loads: &[u64]) -> LayerCounts {
        LayerCounts::of(loads.iter().copied().map(Load).collect())
    }

    /// Groups of two experts, memory for `groups` of them.
    fn of(calibrated: &[LayerCounts], groups: u64) -> (Residency, Device) {
        let device = Device { group_max: 2, resident_bytes_max: Bytes(20 * groups + 5), ..device() };
        let provision = Provision::Calibrated { tiers_max: 2, headroom: 1.0 };
        let grouped = |counts: &LayerCounts| {
            let tiers = Tiers::of(counts, &shape(), &device, provision);
            Grouping::of(counts, &tiers, &shape(), &device).groups
        };
        let layers = calibrated.iter().map(|counts| (counts, grouped(counts))).collect();
        (Residency::new(layers, shape(), &device), device)
    }

    fn drain(residency: &mut Residency) -> Vec<Command> {
        std::iter::from_fn(|| residency.poll()).collect()
    }

    /// Does what is asked until nothing is; says how much that was.
    fn settle(residency: &mut Residency) -> usize {
        let mut done = 0;
        while let Some(command) = residency.poll() {
            residency.handle(match command {
                Command::Load(group) => Event::Loaded(group),
                Command::Release(group) => Event::Released(group),
            });
            done += 1;
        }
        done
    }

    #[test]
    fn hot_groups_are_loaded_and_used_only_when_they_are_there() {
        let (mut residency, _) = of(&[layer(&[60, 60, 60, 60, 1, 1, 1, 1])], 1);
        assert_eq!(drain(&mut residency), [Command::Load(GroupId(0))]);
        assert_eq!(residency.place(GroupId(0)), Place::Cpu);
        residency.handle(Event::Loaded(GroupId(0)));
        assert_eq!(residency.place(GroupId(0)), Place::Accelerator);
        assert_eq!(residency.hot(0).map(|(group, _)| group).collect::<Vec<_>>(), [GroupId(0)]);
        assert_eq!(residency.place(GroupId(99)), Place::Cpu);
    }

    #[test]
    fn cold_groups_stay_on_the_cpu_whatever_memory_there_is() {
        let (mut residency, _) = of(&[layer(&[300, 300, 1, 1, 1, 1])], 9);
        settle(&mut residency);
        let places: Vec<Place> = (0..3).map(|group| residency.place(GroupId(group))).collect();
        assert_eq!(places, [Place::Accelerator, Place::Cpu, Place::Cpu]);
    }

    #[test]
    fn traffic_that_went_elsewhere_takes_its_groups_in_and_the_others_out() {
        let (mut residency, _) = of(&[layer(&[60, 60, 40, 40])], 1);
        settle(&mut residency);
        let drifted = Event::Routed { layer: 0, counts: layer(&[10, 10, 246, 246]) };
        residency.handle(drifted.clone());
        assert_eq!(residency.poll(), None, "one chunk is not enough");
        let mut commands = Vec::new();
        for _ in 0..60 {
            residency.handle(drifted.clone());
            commands.extend(residency.poll());
        }
        assert_eq!(commands, [Command::Release(GroupId(0))], "the other is loaded when there is room");
        assert_eq!(residency.place(GroupId(0)), Place::Cpu);
        residency.handle(Event::Released(GroupId(0)));
        assert_eq!(residency.poll(), Some(Command::Load(GroupId(1))));
        residency.handle(Event::Loaded(GroupId(1)));
        assert_eq!((residency.place(GroupId(1)), residency.poll()), (Place::Accelerator, None));
    }

    #[test]
    fn what_cannot_be_loaded_gives_its_room_to_another() {
        let (mut residency, _) = of(&[layer(&[60, 60, 40, 40])], 1);
        assert_eq!(drain(&mut residency), [Command::Load(GroupId(0))]);
        residency.handle(Event::LoadFailed(GroupId(0)));
        assert_eq!(drain(&mut residency), [Command::Load(GroupId(1))]);
        residency.handle(Event::Loaded(GroupId(1)));
        assert_eq!(drain(&mut residency), []);
    }

    #[test]
    fn what_could_not_be_loaded_is_tried_again_less_and_less_often_and_used_when_it_comes() {
        let traffic = layer(&[300, 300, 1, 1, 1, 1]);
        let (mut residency, _) = of(std::slice::from_ref(&traffic), 1);
        // Chunks until it is asked for again.
        let mut waits = Vec::new();
        for _ in 0..3 {
            assert_eq!(drain(&mut residency), [Command::Load(GroupId(0))]);
            residency.handle(Event::LoadFailed(GroupId(0)));
            let mut chunks = 0;
            let other = |command: &Command| *command != Command::Load(GroupId(0));
            while residency.commands.iter().all(other) {
                settle(&mut residency);
                residency.handle(Event::Routed { layer: 0, counts: traffic.clone() });
                chunks += 1;
                assert!(chunks < 1000, "never again");
            }
            waits.push(chunks);
        }
        assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
        settle(&mut residency);
        assert_eq!(residency.place(GroupId(0)), Place::Accelerator);
        assert_eq!(residency.groups[0].failures, 0);
    }

    /// What whoever holds the graphs does next.
    #[derive(Clone, Debug)]
    enum Step {
        Route(usize, LayerCounts),
        Do,
        Fail,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let route = (0_usize..3, counts(8..9)).prop_map(|(layer, counts)| Step::Route(layer, counts));
        prop::collection::vec(prop_oneof![6 => route, 5 => Just(Step::Do), 1 => Just(Step::Fail)], 0..120)
    }

    proptest! {
        #[test]
        fn memory_holds_and_only_what_is_loaded_is_used(
            calibrated in prop::collection::vec(counts(8..9), 2), groups in 0_u64..9, steps in steps(),
        ) {
            let (mut residency, device) = of(&calibrated, groups);
            let (mut asked, mut there) = (VecDeque::new(), std::collections::BTreeSet::new());
            for step in steps {
                asked.extend(drain(&mut residency));
                let event = match (step, asked.is_empty()) {
                    (Step::Route(layer, counts), _) => Some(Event::Routed { layer, counts }),
                    (_, true) => None,
                    (step, false) => asked.pop_front().map(|command| match (command, step) {
                        (Command::Load(group), Step::Fail) => Event::LoadFailed(group),
                        (Command::Load(group), _) => {
                            there.insert(group);
                            Event::Loaded(group)
                        }
                        (Command::Release(group), _) => {
                            there.remove(&group);
                            Event::Released(group)
                        }
                    }),
                };
                event.into_iter().for_each(|event| residency.handle(event));
                prop_assert!(residency.taken() <= device.resident_bytes_max);
                let used = (0..residency.groups.len() as u32).map(GroupId).filter(|group| residency.place(*group) == Place::Accelerator);
                prop_assert!(used.into_iter().all(|group| there.contains(&group)));
            }
        }

        #[test]
        fn steady_traffic_comes_to_rest_with_the_worthiest_groups_hot(
            calibrated in counts(8..9), traffic in counts(8..9), groups in 0_u64..5,
        ) {
            let (mut residency, _) = of(&[calibrated], groups);
            settle(&mut residency);
            let chunk = |load: &Load| Load(load.0 * 512);
            let traffic = LayerCounts::of(traffic.loads().iter().map(chunk).collect());
            let mut route = || {
                residency.handle(Event::Routed { layer: 0, counts: traffic.clone() });
                settle(&mut residency)
            };
            (0..400).for_each(|_| {
                route();
            });
            prop_assert_eq!((0..20).map(|_| route()).sum::<usize>(), 0);
            let (hot, cold): (Vec<&Held>, Vec<&Held>) =
                residency.groups.iter().partition(|held| held.state == State::Hot);
            for (hot, cold) in hot.iter().flat_map(|hot| cold.iter().map(move |cold| (hot, cold))) {
                prop_assert!(hot.worth >= 0.0);
                let same_size = hot.bytes == cold.bytes && cold.worth > 125.0;
                prop_assert!(!same_size || cold.worth <= MARGIN * hot.worth + 1e-6, "{} > {}", cold.worth, hot.worth);
            }
        }
    }
}
