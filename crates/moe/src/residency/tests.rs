//! Residency with few groups.

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

/// Eight groups that are larger than all memory are worth most, and keep none of the others out.
#[test]
fn what_is_larger_than_all_memory_is_in_nobody_s_way() {
    let group = |experts: std::ops::Range<u32>| Group {
        capacity: duet_types::Tokens(32),
        experts: experts.map(crate::ExpertId).collect(),
    };
    let mut groups: Vec<Group> = (0..8).map(|group_at| group(4 * group_at..4 * group_at + 4)).collect();
    groups.extend([group(32..33), group(33..34)]);
    let counts = |last: [u64; 2]| LayerCounts::of((0..32).map(|_| 64).chain(last).map(Load).collect());
    let shape = MoeShape { chosen: 8, ..shape() };
    let times = Times { launch: duet_types::Nanos(100), ..device().times };
    let device = Device { resident_bytes_max: Bytes(15), times, ..device() };
    let mut residency = Residency::new(vec![(&counts([64, 2]), groups)], shape, &device);
    settle(&mut residency);
    assert_eq!(residency.place(GroupId(8)), Place::Accelerator);
    for _ in 0..200 {
        residency.handle(Event::Routed { layer: 0, counts: counts([1, 64]) });
        settle(&mut residency);
    }
    assert_eq!([8, 9].map(|group| residency.place(GroupId(group))), [Place::Cpu, Place::Accelerator]);
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
            let by_chance = hot.worth + DEVIATIONS * (hot.chance + cold.chance).sqrt();
            let stays = cold.worth <= (MARGIN * hot.worth).max(by_chance) + 1e-6;
            prop_assert!(!same_size || stays, "{} > {}", cold.worth, hot.worth);
        }
    }
}
