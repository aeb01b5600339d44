//! Keys and values of the sequences that are being read, as graphs take them: floats in the host's memory, which a
//! device reads in place.
//!
//! A chunk adds what is new of it. How much of an older copy is still right, the cache says by its lineage
//! (`duet_model::kv`): a turn that continues an earlier one, a prompt that was put aside, or one that was cancelled and
//! came again finds what they have in common. The rows of a pass are read anew in each, since it may be given up.
//!
//! There are copies of [`SEQUENCES_MAX`] sequences, the last ones that were used, each as long as the graph that reads it:
//! of `layers × 2 × context × kv heads × dimensions` floats, which is 180 MiB at 4,096 positions for a model of 30 layers
//! with 3 heads of 64.
//!
//! Invariant: what a graph is given is what reading the whole cache into zeros would give, to the bit. So no number of
//! one sequence, however odd, can reach another's results.

use duet_model::forward::CacheRows;
use duet_model::kv::LineageId;
use duet_runtimes::Buffer;
use duet_types::{Bytes, Tokens};
use std::sync::Arc;

/// Copies of a few sequences' keys and values.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    /// The last that was used comes first.
    sequences: Vec<Mirror>,
}

/// A copy of one sequence's.
#[derive(Debug)]
struct Mirror {
    lineage: LineageId,
    layers: Vec<Option<Layer>>,
}

/// A layer's keys and values.
#[derive(Debug)]
struct Layer {
    sides: [Arc<Buffer>; 2],
    /// Positions that are the lineage's.
    held: usize,
    /// Positions that are not zeros, at most.
    written: usize,
}

impl Mirrors {
    /// Keys and values of a layer, zeros behind the cache's positions up to `context`, and how many positions were read for
    /// that.
    pub(super) fn sides(&mut self, context: Tokens, layer: usize, cache: &CacheRows<'_>) -> ([Arc<Buffer>; 2], Tokens) {
        let mirror = self.mirror(cache);
        if mirror.layers.len() <= layer {
            mirror.layers.resize_with(layer + 1, || None);
        }
        let layer = mirror.layers[layer].get_or_insert_with(Layer::empty);
        let read = layer.read(context, cache);
        (layer.sides.clone(), read)
    }

    /// Drops the copy of a sequence.
    pub(super) fn forget(&mut self, lineage: LineageId) {
        self.sequences.retain(|mirror| mirror.lineage != lineage);
    }

    /// What all copies take.
    pub(super) fn bytes(&self) -> Bytes {
        let layers = self.sequences.iter().flat_map(|mirror| mirror.layers.iter().flatten());
        let floats: usize = layers.flat_map(|layer| &layer.sides).map(|side| side.len()).sum();
        Bytes((floats * size_of::<f32>()) as u64)
    }

    /// The copy of this sequence, or the one that has most in common with it; else the one that was not used for longest.
    fn mirror(&mut self, cache: &CacheRows<'_>) -> &mut Mirror {
        let lineage = cache.lineage();
        let akin = |(at, mirror): (usize, &Mirror)| {
            let common =
                if mirror.lineage == lineage { Tokens(u32::MAX) } else { cache.unchanged_since(mirror.lineage) };
            (common > Tokens::ZERO).then_some((common, at))
        };
        let best = self.sequences.iter().enumerate().filter_map(akin).max();
        let mut mirror = match best {
            Some((_, at)) => self.sequences.remove(at),
            None if self.sequences.len() < SEQUENCES_MAX => Mirror { lineage, layers: Vec::new() },
            None => self.sequences.remove(SEQUENCES_MAX - 1),
        };
        mirror.becomes(cache);
        self.sequences.insert(0, mirror);
        &mut self.sequences[0]
    }
}

impl Mirror {
    /// It is this cache's from now on, as far as it is the same.
    fn becomes(&mut self, cache: &CacheRows<'_>) {
        if self.lineage == cache.lineage() {
            return;
        }
        let common = cache.unchanged_since(self.lineage).as_usize();
        self.layers.iter_mut().flatten().for_each(|layer| layer.held = layer.held.min(common));
        self.lineage = cache.lineage();
    }
}

impl Layer {
    fn empty() -> Self {
        Self { sides: Default::default(), held: 0, written: 0 }
    }

    /// Brings it up to the cache, for a graph of this length. Returns how many positions that took.
    fn read(&mut self, context: Tokens, cache: &CacheRows<'_>) -> Tokens {
        let (width, end) = (cache.width(), cache.positions().as_usize());
        let from = self.held.min(cache.unchanged_since(cache.lineage()).as_usize());
        self.resize(context.as_usize(), from, width);
        let [Some(keys), Some(values)] = self.sides.each_mut().map(Arc::get_mut) else { return Tokens::ZERO };
        let new = from * width..end * width;
        cache.read(Tokens(from as u32), &mut keys[new.clone()], &mut values[new]);
        if self.written > end {
            let behind = end * width..self.written * width;
            [keys, values].into_iter().for_each(|side| side[behind.clone()].fill(0.0));
        }
        (self.held, self.written) = (end, end);
        Tokens((end - from) as u32)
    }

    /// Makes its sides so long and writable. They are other ones, with the first `kept` positions of those before, where a
    /// graph of another length reads them or a device that hangs has not given them back.
    fn resize(&mut self, context: usize, kept: usize, width: usize) {
        let (floats, same) = (context * width, kept * width);
        if self.sides.iter_mut().all(|side| side.len() == floats && Arc::get_mut(side).is_some()) {
            return;
        }
        self.sides = self.sides.each_ref().map(|side| {
            let mut other = Buffer::zeroed(floats);
            other[..same].copy_from_slice(&side[..same]);
            Arc::new(other)
        });
        self.written = kept;
    }
}

/// A person's prompt, and the one in the background that it has interrupted.
const SEQUENCES_MAX: usize = 2;

#[cfg(test)]
#[path = "mirror/tests.rs"]
mod tests;
