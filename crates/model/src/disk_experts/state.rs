//! Which experts are in memory, and what is to be read.

use super::ExpertMemoryStats;
use super::memory::{Slot, Slots};
use super::place::ExpertPlace;
use duet_kernels::fused::Feed;
use duet_moe::{Answer, Calibration, ExpertCache, ExpertId, Place};
use duet_types::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Behind one lock; nothing here takes longer than a look at all experts.
#[derive(Debug)]
pub(super) struct State {
    cache: ExpertCache,
    slots: Slots,
    experts: Vec<Vec<Resident>>,
    /// What passes wait for, first come, first read.
    wanted: VecDeque<Job>,
    /// What nobody asks for yet, behind that.
    foreseen: VecDeque<Job>,
    /// What went wrong with those that are lost.
    problems: BTreeMap<Place, String>,
    /// Of the layer that was foreseen last: which it is, and its experts.
    predicted: Option<(usize, Vec<u32>)>,
    stats: ExpertMemoryStats,
    pub(super) is_stopping: bool,
}

/// An expert that is to be read.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) slot: Slot,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Wanted,
    Foreseen,
    /// It is to be kept for good.
    Kept,
}

#[derive(Debug)]
enum Resident {
    Absent,
    Arriving,
    Present { feed: Arc<Feed>, slot: Arc<Slot> },
}

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
            wanted: VecDeque::new(),
            foreseen: VecDeque::new(),
            problems: BTreeMap::new(),
            predicted: None,
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
    pub(super) fn ask(&mut self, layer: usize, experts: &[ExpertId]) -> Vec<ExpertId> {
        let answers = self.cache.ask(layer, experts);
        let mut without_room = Vec::new();
        for (&expert, answer) in experts.iter().zip(answers) {
            let place = Place { layer, expert };
            match answer {
                Answer::Present => {}
                Answer::Arriving => self.hurry(place),
                Answer::Read { dropped } => self.enqueue(place, dropped, Why::Wanted),
                Answer::NoRoom => without_room.push(expert),
            }
        }
        without_room
    }

    /// Whether there is anything to read now.
    pub(super) fn foresee(&mut self, layer: usize, experts: &[u32]) -> bool {
        self.predicted = Some((layer, experts.to_vec()));
        let before = self.foreseen.len();
        for &expert in experts {
            let place = Place { layer, expert: ExpertId(expert) };
            if let Some(Answer::Read { dropped }) = self.cache.foresee(place) {
                self.enqueue(place, dropped, Why::Foreseen);
            }
        }
        self.foreseen.len() > before
    }

    /// What was foreseen for a layer, and is neither read nor asked for now that the layer is there, was foreseen in vain.
    pub(super) fn forget_foreseen(&mut self, layer: usize) {
        let in_vain = |job: &Job| job.why == Why::Foreseen && job.place.layer == layer;
        while let Some(at) = self.foreseen.iter().position(in_vain) {
            let Some(job) = self.foreseen.remove(at) else { return };
            self.lose(job.place, job.slot);
        }
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
        self.wanted.pop_front().or_else(|| self.foreseen.pop_front())
    }

    pub(super) fn arrived(&mut self, place: Place, feed: Arc<Feed>, slot: Arc<Slot>, bytes: usize) {
        self.stats.read.0 += bytes as u64;
        self.experts[place.layer][place.expert.index()] = Resident::Present { feed, slot };
        self.problems.remove(&place);
        self.cache.arrived(place);
    }

    pub(super) fn failed(&mut self, place: Place, slot: Slot, problem: String) {
        self.problems.insert(place, problem);
        self.lose(place, slot);
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
        let queue = if why == Why::Wanted { &mut self.wanted } else { &mut self.foreseen };
        queue.push_back(Job { place, slot, why });
    }

    /// The slot of an expert that nobody holds. Passes put what they hold away before they release it.
    fn slot_of(&mut self, dropped: Place) -> Option<Slot> {
        let resident = &mut self.experts[dropped.layer][dropped.expert.index()];
        let Resident::Present { feed, slot } = std::mem::replace(resident, Resident::Absent) else { return None };
        drop(feed);
        Arc::into_inner(slot)
    }

    /// What was foreseen is wanted now.
    fn hurry(&mut self, place: Place) {
        if let Some(at) = self.foreseen.iter().position(|job| job.place == place)
            && let Some(job) = self.foreseen.remove(at)
        {
            self.wanted.push_back(Job { why: Why::Wanted, ..job });
        }
    }
}
