//! Slots of memory for experts, a class for each size, as many as the memory that was given has room for.
//!
//! Memory is divided among the classes as the experts are. Slots are made as they are wanted, some at once, which then share
//! huge pages.

use super::ExpertMemoryError;
use super::place::{BLOCK, ExpertPlace};
use duet_kernels::memory::Aligned;
use duet_kernels::packed::Lend;
use duet_moe::LayerShape;
use duet_types::Bytes;
use std::collections::BTreeMap;

/// Memory that takes one expert.
#[derive(Debug)]
pub(super) struct Slot(Aligned<u8>);

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Lend for Slot {}

impl From<Aligned<u8>> for Slot {
    fn from(memory: Aligned<u8>) -> Self {
        Self(memory)
    }
}

impl Slot {
    /// Where the first block of it begins.
    pub(super) fn base(&self) -> usize {
        // More than there is means nowhere; the slot is longer than a block.
        self.0.as_ptr().align_offset(BLOCK).min(BLOCK)
    }

    /// So many of its bytes from the first block on.
    pub(super) fn blocks(&mut self, len: usize) -> Option<&mut [u8]> {
        let base = self.base();
        self.0.get_mut(base..base.checked_add(len)?)
    }
}

/// All slots.
#[derive(Debug)]
pub(super) struct Slots {
    classes: Vec<Class>,
    shapes: Vec<LayerShape>,
}

#[derive(Debug)]
struct Class {
    /// Bytes of a slot.
    each: usize,
    /// How many there may be.
    count: usize,
    made: usize,
    free: Vec<Slot>,
}

/// Slots are made for so many bytes at once.
const AT_ONCE: usize = 32 << 20;

impl Slots {
    /// As many as `memory` takes.
    pub(super) fn new(places: &[Vec<ExpertPlace>], memory: Bytes, chosen: usize) -> Result<Self, ExpertMemoryError> {
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        let layers = places.iter().filter_map(|layer| Some((slot_bytes(layer)?, layer.len())));
        for (each, experts) in layers {
            *sizes.entry(each).or_default() += experts;
        }
        let all: usize = sizes.iter().map(|(each, experts)| each * experts).sum();
        // Of a class whose share of the memory is that of its experts.
        let share = |each: usize, experts: usize| {
            let share = memory.0 as u128 * (each * experts) as u128 / all.max(1) as u128;
            (share / each as u128).min(experts as u128) as usize
        };
        let least = |experts: usize| (chosen.min(experts) as u128 * all as u128).div_ceil((experts as u128).max(1));
        let needed = sizes.values().map(|&experts| least(experts)).max().unwrap_or_default();
        if sizes.iter().any(|(&each, &experts)| share(each, experts) < chosen.min(experts)) {
            return Err(ExpertMemoryError::TooSmall {
                given: memory,
                chosen,
                each: Bytes(sizes.keys().max().copied().unwrap_or_default() as u64),
                least: Bytes(needed as u64),
                all: Bytes(all as u64),
            });
        }
        let class = |(&each, &experts): (&usize, &usize)| Class {
            each,
            count: share(each, experts),
            made: 0,
            free: Vec::new(),
        };
        let shape = |layer: &Vec<ExpertPlace>| LayerShape {
            experts: layer.len(),
            class: slot_bytes(layer).and_then(|each| sizes.keys().position(|other| *other == each)).unwrap_or_default(),
        };
        Ok(Self { classes: sizes.iter().map(class).collect(), shapes: places.iter().map(shape).collect() })
    }

    /// Which layer is of which class.
    pub(super) fn shapes(&self) -> &[LayerShape] {
        &self.shapes
    }

    /// How many there are of each class.
    pub(super) fn counts(&self) -> Vec<usize> {
        self.classes.iter().map(|class| class.count).collect()
    }

    /// What they take when all are made.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.classes.iter().map(|class| (class.each * class.count) as u64).sum())
    }

    /// One for an expert of a layer.
    pub(super) fn take(&mut self, layer: usize) -> Slot {
        let class = &mut self.classes[self.shapes[layer].class];
        if let Some(slot) = class.free.pop() {
            return slot;
        }
        let count = (AT_ONCE / class.each.max(1)).clamp(1, class.count.saturating_sub(class.made).max(1));
        class.made += count;
        class.free.extend(Aligned::slab(count, class.each).into_iter().map(Slot));
        class.free.pop().unwrap_or_else(|| Slot(Aligned::zeroed(class.each)))
    }

    /// One that nobody needs just now.
    pub(super) fn give_back(&mut self, layer: usize, slot: Slot) {
        self.classes[self.shapes[layer].class].free.push(slot);
    }
}

/// What takes any expert of a layer, wherever in a block it begins in the file, and wherever the slot lies in memory.
fn slot_bytes(layer: &[ExpertPlace]) -> Option<usize> {
    let longest = layer.iter().map(|place| place.span().len()).max()?;
    Some(longest.next_multiple_of(BLOCK) + 2 * BLOCK)
}
