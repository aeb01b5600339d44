use super::*;
use crate::calibration::{LayerCounts, Load};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn ids(experts: &[u32]) -> Vec<ExpertId> {
    experts.iter().copied().map(ExpertId).collect()
}

fn place(layer: usize, expert: u32) -> Place {
    Place { layer, expert: ExpertId(expert) }
}

fn cache(slots: usize, layers: usize, experts: usize) -> ExpertCache {
    ExpertCache::new(&[slots], &vec![LayerShape { experts, class: 0 }; layers])
}

/// Asks, reads and releases what one row goes to. What was read.
fn pass(cache: &mut ExpertCache, layer: usize, experts: &[u32]) -> Vec<u32> {
    let rows: Vec<(ExpertId, u32)> = ids(experts).into_iter().map(|expert| (expert, 1)).collect();
    cache.saw(layer, 1, &rows);
    let answers = cache.ask(layer, &ids(experts));
    let read = experts.iter().zip(answers).filter(|(_, answer)| matches!(answer, Answer::Read { .. }));
    let read: Vec<u32> = read.map(|(&expert, _)| expert).collect();
    read.iter().for_each(|&expert| cache.arrived(place(layer, expert)));
    experts.iter().for_each(|&expert| cache.release(place(layer, expert)));
    read
}

#[test]
fn what_rows_go_to_often_stays() {
    let mut cache = cache(3, 1, 8);
    for _ in 0..4 {
        pass(&mut cache, 0, &[0, 1]);
    }
    for rare in 2..8 {
        assert_eq!(pass(&mut cache, 0, &[0, rare]), [rare]);
    }
    assert_eq!(pass(&mut cache, 0, &[0, 1]), [], "what was rare went first");
    assert_eq!(cache.stats(), CacheStats { hits: 2 * 3 + 6 + 2, misses: 2 + 6, ..CacheStats::default() });
}

#[test]
fn layers_in_turn_do_not_drive_each_other_out() {
    // Four layers want two experts each, and there are seven slots: recency alone would miss all eight each time.
    let mut cache = cache(7, 4, 4);
    let mut round = || (0..4).map(|layer| pass(&mut cache, layer, &[0, 1]).len()).sum::<usize>();
    let first = round();
    let read: usize = (0..20).map(|_| round()).sum();
    assert_eq!(first, 8);
    assert!(read <= 20 * 2, "{read}");
}

#[test]
fn what_a_pass_holds_is_not_dropped_under_it() {
    let mut cache = cache(2, 1, 4);
    assert_eq!(
        cache.ask(0, &ids(&[0, 1, 2])),
        [Answer::Read { dropped: None }, Answer::Read { dropped: None }, Answer::NoRoom]
    );
    cache.arrived(place(0, 0));
    cache.arrived(place(0, 1));
    assert_eq!(cache.ask(0, &ids(&[2])), [Answer::NoRoom]);
    cache.release(place(0, 1));
    assert_eq!(cache.ask(0, &ids(&[0, 2])), [Answer::Present, Answer::Read { dropped: Some(place(0, 1)) }]);
    assert_eq!(cache.ask(0, &ids(&[2])), [Answer::Arriving]);
    cache.lost(place(0, 2));
    assert_eq!(cache.ask(0, &ids(&[3])), [Answer::Read { dropped: None }], "what was lost leaves its slot");
}

#[test]
fn what_is_foreseen_takes_the_place_of_what_is_less_likely() {
    let mut cache = cache(2, 2, 3);
    pass(&mut cache, 0, &[0]);
    (0..3).for_each(|_| drop(pass(&mut cache, 1, &[0])));
    assert_eq!(cache.foresee(place(1, 0)), None, "it is there");
    assert_eq!(cache.foresee(place(1, 2)), None, "both are needed by the next row");
    (0..8).for_each(|_| cache.saw(0, 1, &[(ExpertId(1), 1)]));
    assert_eq!(cache.foresee(place(1, 2)), Some(Answer::Read { dropped: Some(place(0, 0)) }));
    assert_eq!(cache.ask(1, &ids(&[2])), [Answer::Arriving]);
    let CacheStats { foreseen, foreseen_used, .. } = cache.stats();
    assert_eq!((foreseen, foreseen_used), (1, 1));
}

#[test]
fn the_busiest_by_a_calibration_are_kept() {
    let counts = |loads: [u64; 4]| LayerCounts::of(loads.map(Load).to_vec());
    let calibration = Calibration::new(1, Load(10), vec![counts([1, 6, 1, 2]), counts([0, 0, 10, 0])]).unwrap();
    let shape = |experts| LayerShape { experts, class: 0 };
    // The layer between them has no experts.
    let mut cache = ExpertCache::new(&[4], &[shape(4), shape(0), shape(4)]);
    assert_eq!(cache.calibrate(&calibration, &[0, 2]), [place(0, 1), place(2, 2)]);
    cache.arrived(place(0, 1));
    cache.arrived(place(2, 2));
    for round in 0..20 {
        pass(&mut cache, 0, &[[0, 2, 3][round % 3]]);
    }
    assert_eq!((pass(&mut cache, 0, &[1]), pass(&mut cache, 2, &[2])), (vec![], vec![]));
}

#[derive(Clone, Debug)]
enum Call {
    Ask(usize, Vec<u32>),
    Foresee(usize, u32),
    Arrive(usize),
    Lose(usize),
    Release(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let experts = prop::collection::btree_set(0_u32..6, 1..5).prop_map(|set| set.into_iter().collect());
    let call = prop_oneof![
        4 => (0_usize..4, experts).prop_map(|(layer, experts)| Call::Ask(layer, experts)),
        1 => (0_usize..4, 0_u32..6).prop_map(|(layer, expert)| Call::Foresee(layer, expert)),
        4 => (0_usize..64).prop_map(Call::Arrive),
        1 => (0_usize..64).prop_map(Call::Lose),
        4 => (0_usize..64).prop_map(Call::Release),
    ];
    prop::collection::vec(call, 1..120)
}

/// What a caller knows of the experts that are in memory or on their way.
#[derive(Default)]
struct Caller {
    /// Whether they have arrived.
    slots: BTreeMap<Place, bool>,
    /// How often each is held, be it there or lost.
    holds: BTreeMap<Place, u32>,
}

impl Caller {
    fn read(&mut self, place: Place, dropped: Option<Place>) {
        if let Some(dropped) = dropped {
            assert_eq!(self.slots.remove(&dropped), Some(true), "{dropped:?} was dropped before it came");
            assert_eq!(self.holds.get(&dropped).copied().unwrap_or_default(), 0, "{dropped:?} was dropped while held");
        }
        assert_eq!(self.slots.insert(place, false), None);
    }

    fn hold(&mut self, place: Place) {
        *self.holds.entry(place).or_default() += 1;
    }

    fn arriving(&self, which: usize) -> Option<Place> {
        picked(self.slots.iter().filter(|(_, has_come)| !**has_come).map(|(place, _)| *place).collect(), which)
    }

    fn held(&self, which: usize) -> Option<Place> {
        picked(self.holds.iter().filter(|(_, holds)| **holds > 0).map(|(place, _)| *place).collect(), which)
    }
}

fn picked(all: Vec<Place>, which: usize) -> Option<Place> {
    all.get(which.checked_rem(all.len())?).copied()
}

proptest! {
    /// Layers 0 and 2 are of one class, 1 and 3 of another.
    #[test]
    fn slots_are_never_overdrawn_and_nothing_that_is_needed_is_dropped(
        slots in (1_usize..5, 1_usize..5),
        calls in calls(),
    ) {
        let layers: Vec<LayerShape> = (0..4).map(|layer| LayerShape { experts: 6, class: layer % 2 }).collect();
        let slots = [slots.0, slots.1];
        let (mut cache, mut caller) = (ExpertCache::new(&slots, &layers), Caller::default());
        for call in calls {
            match call {
                Call::Ask(layer, experts) => {
                    let rows: Vec<(ExpertId, u32)> = experts.iter().map(|&expert| (ExpertId(expert), 1)).collect();
                    cache.saw(layer, experts.len(), &rows);
                    let answers = cache.ask(layer, &ids(&experts));
                    for (&expert, answer) in experts.iter().zip(answers) {
                        let at = place(layer, expert);
                        match answer {
                            Answer::Read { dropped } => {
                                caller.read(at, dropped);
                                caller.hold(at);
                            }
                            Answer::NoRoom => prop_assert!(!caller.slots.contains_key(&at)),
                            Answer::Present | Answer::Arriving => {
                                prop_assert_eq!(caller.slots.get(&at), Some(&(answer == Answer::Present)));
                                caller.hold(at);
                            }
                        }
                    }
                }
                Call::Foresee(layer, expert) => {
                    if let Some(Answer::Read { dropped }) = cache.foresee(place(layer, expert)) {
                        caller.read(place(layer, expert), dropped);
                    }
                }
                Call::Arrive(which) => {
                    if let Some(at) = caller.arriving(which) {
                        cache.arrived(at);
                        caller.slots.insert(at, true);
                    }
                }
                Call::Lose(which) => {
                    if let Some(at) = caller.arriving(which) {
                        cache.lost(at);
                        caller.slots.remove(&at);
                    }
                }
                Call::Release(which) => {
                    if let Some(at) = caller.held(which) {
                        cache.release(at);
                        caller.holds.entry(at).and_modify(|holds| *holds -= 1);
                    }
                }
            }
            for (class, &slots) in slots.iter().enumerate() {
                let used = caller.slots.keys().filter(|place| place.layer % 2 == class).count();
                prop_assert!(used <= slots);
            }
        }
    }
}

#[test]
fn those_who_left_hold_half_of_the_slots_at_most() {
    let mut cache = cache(6, 2, 8);
    cache.ask(0, &ids(&[0, 1, 2, 3]));
    assert!(!cache.park(0, &ids(&[0, 1, 2, 3])), "two slots would be left of six");
    assert!(cache.park(0, &ids(&[0, 1, 2])));
    assert!(cache.park(0, &ids(&[1, 2])), "what is held already takes nothing more");
    assert!(!cache.park(0, &ids(&[3])));
    cache.unpark(0, &ids(&[0, 1, 2]));
    assert!(cache.park(0, &ids(&[3])), "one of them is free again");
    cache.unpark(0, &ids(&[1, 2]));
    cache.unpark(0, &ids(&[3]));
    assert!(cache.park(0, &ids(&[0, 1, 2])));
}

#[test]
fn what_is_lost_while_it_is_waited_for_is_counted_once() {
    let mut cache = cache(4, 1, 8);
    let counts = LayerCounts::of((0..8).map(|expert| Load(8 - expert)).collect());
    let kept = cache.calibrate(&Calibration::new(1, Load(36), vec![counts]).unwrap(), &[0]);
    assert_eq!(kept, [place(0, 0), place(0, 1)]);
    cache.ask(0, &ids(&[0]));
    assert!(cache.park(0, &ids(&[0])), "what is kept takes nothing from the others");
    cache.lost(kept[0]);
    cache.unpark(0, &ids(&[0]));
    cache.release(kept[0]);
    // One is kept, and three are for all: a pass may leave with one.
    cache.ask(0, &ids(&[4, 5]));
    assert!(!cache.park(0, &ids(&[4, 5])));
    assert!(cache.park(0, &ids(&[4])));
}
