//! Which experts of a mixture are in memory when not all of them fit: the rest are read when a pass asks for them.
//!
//! Experts of one size share slots, a *class* for each size, so that whatever is dropped leaves exactly the room that the
//! next one needs. A pass *asks* for what a layer's rows need, all at once: one read serves all of them. What it is granted
//! it *holds* until it *releases* it, also if it has left (*parked*) to come back when what it needs is there.
//!
//! What is dropped is what will probably be needed last. A row goes through all layers in turn, so it is known when a layer
//! comes up again; how many rows it takes until one goes to an expert is the inverse of the expert's share of the rows:
//! half by those of some paragraphs, which say what a text is about, and half by the last few, since a token often goes
//! where the one before it went. Recency alone would be wrong here: each layer's experts are the oldest ones just when it
//! comes up again. Experts that a calibration names are kept for good.
//!
//! What is *foreseen* for a layer to come takes only the place of what is not expected before all layers have come up again.
//!
//! Invariants: no class has more experts than slots; what is held, arriving or kept is not dropped; the same calls have the
//! same answers.

use crate::{Calibration, ExpertId};

/// An expert of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Among the layers that have experts and those that have none.
    pub layer: usize,
    /// Within the layer.
    pub expert: ExpertId,
}

/// What a layer's experts are to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// How many; none in a layer without.
    pub experts: usize,
    /// Which class of sizes they are of.
    pub class: usize,
}

/// What becomes of an expert that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in memory, and held.
    Present,
    /// Somebody reads it already; it is held.
    Arriving,
    /// The caller is to read it, into the slot of what is dropped for it, or into one that is free; it is held.
    Read {
        /// What is dropped.
        dropped: Option<Place>,
    },
    /// Everything else is held: ask again when something was released.
    NoRoom,
}

/// What the cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Experts that were asked for and there, or on their way because they were foreseen.
    pub hits: u64,
    /// Experts that were asked for and had to be read.
    pub misses: u64,
    /// Experts that were read because they were foreseen.
    pub foreseen: u64,
    /// Those of them that were asked for before they were dropped.
    pub foreseen_used: u64,
}

/// Which experts are in memory.
#[derive(Clone, Debug)]
pub struct ExpertCache {
    classes: Vec<Class>,
    layers: Vec<Layer>,
    clock: u64,
    stats: CacheStats,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    slots: usize,
    used: usize,
    /// Slots of what is kept for good.
    kept: usize,
    /// Slots of what is not, and is held by passes that have left.
    parked: usize,
}

#[derive(Clone, Debug)]
struct Layer {
    class: usize,
    experts: Vec<Entry>,
    /// Rows that it had, by their age, by each memory.
    rows: [f64; 2],
}

impl Layer {
    /// How many rows it takes, about, until one goes to an expert.
    fn rows_until(&self, entry: &Entry) -> f64 {
        let [long, short] = [0, 1].map(|memory| entry.heat[memory] / self.rows[memory].max(f64::MIN_POSITIVE));
        (2.0 / (long + short).max(f64::MIN_POSITIVE)).max(1.0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    state: State,
    holds: u32,
    /// Passes that hold it and have left.
    parked: u32,
    is_kept: bool,
    /// It was read because it was foreseen, and nobody has asked for it yet.
    is_foreseen: bool,
    /// Rows that went to it, by their age, by each memory.
    heat: [f64; 2],
    asked_at: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Absent,
    Arriving,
    Present,
}

/// Rows of a layer after which a row counts half, in a long memory and in a short one.
const HALF_LIVES: [f64; 2] = [512.0, 8.0];

/// Of a class's slots, those that a calibration may fill for good: what a text needs beside them has the others.
const KEPT_MAX: f64 = 0.5;

impl ExpertCache {
    /// An empty cache with so many slots of each class.
    ///
    /// # Panics
    /// If a layer is of a class that there is not.
    #[must_use]
    pub fn new(slots: &[usize], layers: &[LayerShape]) -> Self {
        assert!(layers.iter().all(|layer| layer.experts == 0 || layer.class < slots.len()), "there is no such class");
        let layer = |shape: &LayerShape| {
            let LayerShape { experts, class } = *shape;
            Layer { class, experts: vec![Entry::default(); experts], rows: [0.0; 2] }
        };
        Self {
            classes: slots.iter().map(|&slots| Class { slots, ..Class::default() }).collect(),
            layers: layers.iter().map(layer).collect(),
            clock: 0,
            stats: CacheStats::default(),
        }
    }

    /// Takes what a calibration counted for what was seen, and names the experts that are to be read and kept: the busiest
    /// of each layer, in equal numbers. `layers` are those that the calibration is of, in its order.
    pub fn calibrate(&mut self, calibration: &Calibration, layers: &[usize]) -> Vec<Place> {
        for (&layer, counts) in layers.iter().zip(calibration.layers()) {
            let layer = &mut self.layers[layer];
            layer.rows = HALF_LIVES;
            for (entry, share) in layer.experts.iter_mut().zip(counts.shares()) {
                entry.heat = HALF_LIVES.map(|rows| share * f64::from(calibration.chosen()) * rows);
            }
        }
        let mut kept = Vec::new();
        for class in 0..self.classes.len() {
            let of_class: Vec<(usize, usize)> =
                layers.iter().copied().enumerate().filter(|(_, layer)| self.layers[*layer].class == class).collect();
            let room = (self.classes[class].slots as f64 * KEPT_MAX) as usize / of_class.len().max(1);
            for (index, layer) in of_class {
                let Some(counts) = calibration.layers().get(index) else { continue };
                let experts = self.layers[layer].experts.len();
                let busiest = counts.popularity().into_iter().filter(|expert| expert.index() < experts).take(room);
                kept.extend(busiest.map(|expert| Place { layer, expert }).filter(|place| self.keep(*place)));
            }
        }
        kept
    }

    /// Gives a place a slot for good, which its caller is to read.
    fn keep(&mut self, place: Place) -> bool {
        let class = &mut self.classes[self.layers[place.layer].class];
        let entry = &mut self.layers[place.layer].experts[place.expert.index()];
        if entry.state != State::Absent || class.used == class.slots {
            return false;
        }
        (class.used, class.kept) = (class.used + 1, class.kept + 1);
        (entry.state, entry.is_kept) = (State::Arriving, true);
        true
    }

    /// Rows of a pass went to experts of a layer: so many to each.
    pub fn saw(&mut self, layer: usize, rows: usize, to: &[(ExpertId, u32)]) {
        let layer = &mut self.layers[layer];
        for (memory, half_life) in HALF_LIVES.into_iter().enumerate() {
            let fade = (-(rows as f64) / half_life).exp2();
            layer.rows[memory] = layer.rows[memory] * fade + rows as f64;
            layer.experts.iter_mut().for_each(|entry| entry.heat[memory] *= fade);
            for &(expert, rows) in to {
                layer.experts[expert.index()].heat[memory] += f64::from(rows);
            }
        }
    }

    /// A pass asks for experts of a layer, each once. What is there is held before anything is dropped for what is not.
    pub fn ask(&mut self, layer: usize, experts: &[ExpertId]) -> Vec<Answer> {
        self.clock += 1;
        for &expert in experts {
            let entry = self.entry(Place { layer, expert });
            if entry.state != State::Absent {
                entry.holds += 1;
            }
        }
        experts.iter().map(|&expert| self.answer(Place { layer, expert })).collect()
    }

    fn answer(&mut self, place: Place) -> Answer {
        let clock = self.clock;
        let entry = self.entry(place);
        entry.asked_at = clock;
        let (state, was_foreseen) = (entry.state, std::mem::take(&mut entry.is_foreseen));
        match state {
            State::Absent => {
                let Some(dropped) = self.room_for(place, -1.0) else { return Answer::NoRoom };
                self.stats.misses += 1;
                let entry = self.entry(place);
                (entry.state, entry.holds) = (State::Arriving, entry.holds + 1);
                Answer::Read { dropped }
            }
            State::Arriving | State::Present => {
                self.stats.hits += 1;
                self.stats.foreseen_used += u64::from(was_foreseen);
                if state == State::Present { Answer::Present } else { Answer::Arriving }
            }
        }
    }

    /// Somebody thinks that an expert will be asked for soon. If it is not there and its place is worth it, the caller is to
    /// read it; nobody holds it.
    pub fn foresee(&mut self, place: Place) -> Option<Answer> {
        let entry = self.entry(place);
        if entry.state != State::Absent {
            return None;
        }
        let dropped = self.room_for(place, self.layers.len() as f64)?;
        self.stats.foreseen += 1;
        let entry = self.entry(place);
        (entry.state, entry.is_foreseen) = (State::Arriving, true);
        Some(Answer::Read { dropped })
    }

    /// An expert was read.
    pub fn arrived(&mut self, place: Place) {
        self.entry(place).state = State::Present;
    }

    /// An expert could not be read: it is not there, and those who hold it release it as if it were.
    pub fn lost(&mut self, place: Place) {
        let entry = self.entry(place);
        let (was_kept, is_parked) = (entry.is_kept, entry.parked > 0);
        (entry.state, entry.is_kept, entry.is_foreseen) = (State::Absent, false, false);
        let class = &mut self.classes[self.layers[place.layer].class];
        class.used -= 1;
        if was_kept {
            class.kept -= 1;
            // It was not counted among these, and will be taken off them.
            class.parked += usize::from(is_parked);
        }
    }

    /// A pass that holds these experts of a layer leaves, and comes back for them: nobody can wait for their slots. Whether
    /// it may: those who have left hold half of what is not kept for good at most, so that the others go on.
    pub fn park(&mut self, layer: usize, experts: &[ExpertId]) -> bool {
        let class = self.layers[layer].class;
        let counts = |entry: &Entry| entry.parked == 0 && !entry.is_kept;
        let new = experts.iter().filter(|expert| counts(&self.layers[layer].experts[expert.index()])).count();
        let Class { slots, kept, parked, .. } = self.classes[class];
        if 2 * (parked + new) > slots - kept {
            return false;
        }
        self.classes[class].parked += new;
        for &expert in experts {
            self.entry(Place { layer, expert }).parked += 1;
        }
        true
    }

    /// It is back, for the same.
    pub fn unpark(&mut self, layer: usize, experts: &[ExpertId]) {
        for &expert in experts {
            let entry = self.entry(Place { layer, expert });
            entry.parked -= 1;
            if entry.parked == 0 && !entry.is_kept {
                let class = self.layers[layer].class;
                self.classes[class].parked -= 1;
            }
        }
    }

    /// A pass does not need an expert any more that it held.
    pub fn release(&mut self, place: Place) {
        let entry = self.entry(place);
        entry.holds = entry.holds.saturating_sub(1);
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.stats
    }

    /// A slot for a place: a free one, or that of what is needed last of its class, if that is later than after so many
    /// layers. Nothing if there is none.
    fn room_for(&mut self, place: Place, after: f64) -> Option<Option<Place>> {
        let class = self.layers[place.layer].class;
        if self.classes[class].used < self.classes[class].slots {
            self.classes[class].used += 1;
            return Some(None);
        }
        let last = self.needed_last(class, place.layer).filter(|(_, layers)| *layers > after)?.0;
        let entry = self.entry(last);
        (entry.state, entry.is_foreseen) = (State::Absent, false);
        Some(Some(last))
    }

    /// What of a class is probably needed last, seen from a layer, and after how many layers that is.
    fn needed_last(&self, class: usize, now: usize) -> Option<(Place, f64)> {
        let all = self.layers.len();
        let droppable = |entry: &Entry| entry.state == State::Present && entry.holds == 0 && !entry.is_kept;
        let mut last: Option<(Place, f64, u64)> = None;
        for (layer, of) in self.layers.iter().enumerate().filter(|(_, layer)| layer.class == class) {
            let until_layer = ((layer + all - now - 1) % all) as f64;
            for (expert, entry) in of.experts.iter().enumerate().filter(|(_, entry)| droppable(entry)) {
                let layers = until_layer + (of.rows_until(entry) - 1.0) * all as f64;
                if last.is_none_or(|(_, most, asked)| layers > most || (layers == most && entry.asked_at < asked)) {
                    last = Some((Place { layer, expert: ExpertId(expert as u32) }, layers, entry.asked_at));
                }
            }
        }
        last.map(|(place, layers, _)| (place, layers))
    }

    fn entry(&mut self, place: Place) -> &mut Entry {
        &mut self.layers[place.layer].experts[place.expert.index()]
    }
}

#[cfg(test)]
mod tests;
