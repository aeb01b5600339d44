//! Which experts are in memory, and what is to be read.

use super::ExpertMemoryStats;
use super::memory::{Slot, Slots};
use super::parked::{Parked, Tell, Ticket};
use super::place::ExpertPlace;
use super::readers::SIDE_BY_SIDE;
use duet_kernels::fused::Feed;
use duet_moe::{Answer, Calibration, ExpertCache, ExpertId, Place};
use duet_types::{Bytes, Class};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Behind one lock; nothing here takes longer than a look at all experts.
#[derive(Debug)]
pub(super) struct State {
    cache: ExpertCache,
    slots: Slots,
    experts: Vec<Vec<Resident>>,
    /// What is to be read, by why: in each queue, first come, first read.
    queues: BTreeMap<Why, VecDeque<Job>>,
    /// What went wrong with those that are lost.
    problems: BTreeMap<Place, String>,
    /// Of the layer that was foreseen last: which it is, and its experts.
    predicted: Option<(usize, Vec<u32>)>,
    parked: Parked,
    stats: ExpertMemoryStats,
    pub(super) is_stopping: bool,
}

/// An expert that is to be read.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) slot: Slot,
}

/// In the order in which jobs are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// A pass of a person waits for it.
    ForPerson,
    /// A pass of the background waits for it.
    ForBackground,
    Foreseen,
    /// It is to be kept for good.
    Kept,
}

impl Why {
    fn of(class: Class) -> Self {
        match class {
            Class::Reactive => Self::ForPerson,
            Class::Proactive => Self::ForBackground,
        }
    }
}

#[derive(Debug)]
enum Resident {
    Absent,
    Arriving,
    Present { feed: Arc<Feed>, slot: Arc<Slot> },
}

/// A pass that left comes back for so many experts, or for the last ones: computed one by one they would not be worth it.
const WORTH_A_LAUNCH: usize = 8;

/// What has become of an expert that somebody waits for.
pub(super) enum Fate {
    Arriving,
    Present(Arc<Feed>),
    /// It could not be read.
    Lost(String),
}

impl State {
    pub(super) fn new(places: &[Vec<ExpertPlace>], slots: Slots) -> Self {
        let absent = |layer: &Vec<ExpertPlace>| layer.iter().map(|_| Resident::Absent).collect();
        Self {
            cache: ExpertCache::new(&slots.counts(), slots.shapes()),
            slots,
            experts: places.iter().map(absent).collect(),
            queues: BTreeMap::new(),
            problems: BTreeMap::new(),
            predicted: None,
            parked: Parked::default(),
            stats: ExpertMemoryStats::default(),
            is_stopping: false,
        }
    }

    pub(super) fn calibrate(&mut self, calibration: &Calibration, layers: &[usize]) {
        for place in self.cache.calibrate(calibration, layers) {
            self.enqueue(place, None, Why::Kept);
        }
    }

    /// Rows go to experts of a layer, each of which is asked for from now on.
    pub(super) fn saw(&mut self, layer: usize, rows: usize, experts: &[(u32, u32)]) {
        let to: Vec<(ExpertId, u32)> = experts.iter().map(|&(expert, rows)| (ExpertId(expert), rows)).collect();
        self.cache.saw(layer, rows, &to);
        if let Some((_, predicted)) = self.predicted.take_if(|(of, _)| *of == layer) {
            let right = predicted.iter().filter(|expert| experts.iter().any(|(other, _)| other == *expert));
            let [all, came_true] = &mut self.stats.predicted;
            (*all, *came_true) = (*all + predicted.len() as u64, *came_true + right.count() as u64);
        }
    }

    /// Asks for experts; those for which there is no room are returned. The others are held.
    pub(super) fn ask(&mut self, (layer, class): (usize, Class), experts: &[ExpertId]) -> Vec<ExpertId> {
        let answers = self.cache.ask(layer, experts);
        let mut without_room = Vec::new();
        for (&expert, answer) in experts.iter().zip(answers) {
            let place = Place { layer, expert };
            match answer {
                Answer::Present => {}
                Answer::Arriving => self.hurry(place, Why::of(class)),
                Answer::Read { dropped } => self.enqueue(place, dropped, Why::of(class)),
                Answer::NoRoom => without_room.push(expert),
            }
        }
        without_room
    }

    /// Whether there is anything to read now.
    pub(super) fn foresee(&mut self, layer: usize, experts: &[u32]) -> bool {
        if experts.is_empty() {
            return false;
        }
        self.predicted = Some((layer, experts.to_vec()));
        let mut is_any = false;
        for &expert in experts {
            let place = Place { layer, expert: ExpertId(expert) };
            if let Some(Answer::Read { dropped }) = self.cache.foresee(place) {
                self.enqueue(place, dropped, Why::Foreseen);
                is_any = true;
            }
        }
        is_any
    }

    /// What was foreseen for a layer, and is neither read nor asked for now that the layer is there, was foreseen in vain.
    pub(super) fn forget_foreseen(&mut self, layer: usize) {
        let foreseen = self.queues.entry(Why::Foreseen).or_default();
        let (in_vain, left): (VecDeque<Job>, VecDeque<Job>) =
            std::mem::take(foreseen).into_iter().partition(|job| job.place.layer == layer);
        *foreseen = left;
        in_vain.into_iter().for_each(|job| self.lose(job.place, job.slot));
    }

    pub(super) fn release(&mut self, layer: usize, expert: ExpertId) {
        self.cache.release(Place { layer, expert });
    }

    pub(super) fn fate(&self, place: Place) -> Fate {
        match &self.experts[place.layer][place.expert.index()] {
            Resident::Arriving => Fate::Arriving,
            Resident::Present { feed, .. } => Fate::Present(Arc::clone(feed)),
            Resident::Absent => Fate::Lost(self.problems.get(&place).cloned().unwrap_or_default()),
        }
    }

    /// What is to be read next.
    pub(super) fn next_job(&mut self) -> Option<Job> {
        self.queues.values_mut().find_map(VecDeque::pop_front)
    }

    /// An expert is there. Whom to tell.
    pub(super) fn arrived(&mut self, place: Place, feed: Arc<Feed>, slot: Arc<Slot>, bytes: usize) -> Vec<Tell> {
        self.stats.read.0 += bytes as u64;
        self.experts[place.layer][place.expert.index()] = Resident::Present { feed, slot };
        self.problems.remove(&place);
        self.cache.arrived(place);
        let (tells, waited) = self.parked.came(place);
        self.stats.waited += waited;
        tells
    }

    /// It cannot be read. Whom to tell.
    pub(super) fn failed(&mut self, place: Place, slot: Slot, problem: String) -> Vec<Tell> {
        self.problems.insert(place, problem);
        self.lose(place, slot);
        self.parked.lost(place).0
    }

    /// A pass that holds experts of a layer, which are coming, leaves; if it may. About how long it will have to wait.
    pub(super) fn park(&mut self, layer: usize, coming: &[ExpertId], bytes: usize) -> Option<(Ticket, Duration)> {
        if !self.cache.park(layer, coming) {
            return None;
        }
        self.stats.given_back += 1;
        let needed = coming.len().min(WORTH_A_LAUNCH);
        let places = coming.iter().map(|&expert| Place { layer, expert }).collect();
        let per_byte = self.stats.reading.as_secs_f64() / (self.stats.read.0 as f64).max(1.0);
        let side_by_side = needed.clamp(1, SIDE_BY_SIDE) as f64;
        let about = Duration::from_secs_f64(per_byte * (needed * bytes) as f64 / side_by_side);
        Some((self.parked.park(places, needed), about))
    }

    /// It is back.
    pub(super) fn unpark(&mut self, ticket: Ticket, layer: usize, coming: &[ExpertId]) {
        self.parked.leave(ticket);
        self.cache.unpark(layer, coming);
    }

    pub(super) fn when_ready(&mut self, ticket: Ticket, tell: Tell) -> Option<Tell> {
        self.parked.when_ready(ticket, tell)
    }

    pub(super) fn waited(&mut self, time: std::time::Duration) {
        self.stats.waited += time;
    }

    pub(super) fn took(&mut self, time: std::time::Duration) {
        self.stats.reading += time;
    }

    pub(super) fn stats(&self) -> ExpertMemoryStats {
        ExpertMemoryStats { cache: self.cache.stats(), ..self.stats }
    }

    pub(super) fn memory(&self) -> Bytes {
        self.slots.bytes()
    }

    fn lose(&mut self, place: Place, slot: Slot) {
        self.experts[place.layer][place.expert.index()] = Resident::Absent;
        self.slots.give_back(place.layer, slot);
        self.cache.lost(place);
    }

    fn enqueue(&mut self, place: Place, dropped: Option<Place>, why: Why) {
        let slot = dropped.and_then(|dropped| self.slot_of(dropped)).unwrap_or_else(|| self.slots.take(place.layer));
        self.experts[place.layer][place.expert.index()] = Resident::Arriving;
        self.queues.entry(why).or_default().push_back(Job { place, slot });
    }

    /// The slot of an expert that nobody holds. Passes put what they hold away before they release it.
    fn slot_of(&mut self, dropped: Place) -> Option<Slot> {
        let resident = &mut self.experts[dropped.layer][dropped.expert.index()];
        let Resident::Present { feed, slot } = std::mem::replace(resident, Resident::Absent) else { return None };
        drop(feed);
        Arc::into_inner(slot)
    }

    /// What was to be read later is wanted now.
    fn hurry(&mut self, place: Place, why: Why) {
        let later = self.queues.range_mut((Bound::Excluded(why), Bound::Unbounded));
        let found = later.into_iter().find_map(|(_, queue)| {
            let at = queue.iter().position(|job| job.place == place)?;
            queue.remove(at)
        });
        if let Some(job) = found {
            self.queues.entry(why).or_default().push_back(job);
        }
    }
}
