//! Keys and values that a device computed, put into the cache: as a device leaves them they are biased, normed and turned, so
//! nothing is left but to store them in the cache's form.
//!
//! All layers of a span at once: a token has some hundreds of numbers of each, and to begin a kernel for those takes as long as
//! to store them.

use super::are_disjoint;
use super::qkv::{KvDestination, KvTail, writers};
use crate::attention::{HEAD_DIM_MAX, PAGE, PageWriter, Slot, TurnedBias};
use crate::crew::Crew;
use crate::isa::Isa;

/// Keys and values of some rows in one layer.
#[derive(Clone, Copy, Debug)]
pub struct ComputedRows<'a> {
    /// Which of the layers that a page has.
    pub layer: usize,
    /// Key heads, and value heads.
    pub kv_heads: usize,
    /// Dimensions of a head.
    pub head_dim: usize,
    /// What is kept apart from keys of eight bits.
    pub key_bias: Option<TurnedBias<'a>>,
    /// `[rows][keys, values]`, each `kv_heads × head_dim`.
    pub keys_and_values: &'a [f32],
}

/// Stores rows of some layers; `destinations` has one entry for each row.
///
/// # Panics
/// If a shape does not fit, a destination does not exist, two rows have the same destination, or two entries the same layer.
pub fn store_computed(
    isa: Isa,
    crew: &dyn Crew,
    layers: &[ComputedRows<'_>],
    tails: &mut [KvTail<'_>],
    destinations: &[KvDestination],
) {
    let places = destinations.iter().map(|to| (to.tail, to.position, 0)..(to.tail, to.position, 1));
    assert!(are_disjoint(places), "two rows at one position");
    assert!(are_disjoint(layers.iter().map(|layer| layer.layer..layer.layer + 1)), "a layer is stored twice");
    let rows = destinations.len();
    let tails = writers(tails);
    for layer in layers {
        assert!(layer.head_dim <= HEAD_DIM_MAX && layer.keys_and_values.len() == rows * layer.width());
    }
    crew.run(&|worker| {
        for layer in layers {
            // Neighbouring positions of a head share lines of a page: a worker takes them together.
            for item in worker.share(layer.kv_heads * rows) {
                let (row, kv_head) = (item % rows, item / rows);
                // SAFETY: rows have different destinations and layers are different, as was checked, and (row, head) is this
                // worker's.
                unsafe { layer.store(isa, row, kv_head, &tails, destinations[row]) };
            }
        }
    });
}

impl ComputedRows<'_> {
    /// Numbers that a row has.
    fn width(&self) -> usize {
        2 * self.kv_heads * self.head_dim
    }

    /// Stores a row's key and value of a head.
    ///
    /// # Safety
    /// Nobody else touches this head's place in the cache meanwhile.
    unsafe fn store(
        &self,
        isa: Isa,
        row: usize,
        kv_head: usize,
        tails: &[(usize, Vec<PageWriter<'_>>)],
        to: KvDestination,
    ) {
        let dim = self.head_dim;
        let (keys, values) = self.keys_and_values[row * self.width()..][..self.width()].split_at(self.kv_heads * dim);
        let (key, value) = (&keys[kv_head * dim..][..dim], &values[kv_head * dim..][..dim]);
        let (first, pages) = &tails[to.tail];
        let offset = to.position - first;
        let page = &pages[offset / PAGE];
        let at = Slot { position: offset % PAGE, layer: self.layer, kv_head };
        let mut without_bias = [0.0; HEAD_DIM_MAX];
        let key = match self.key_bias.filter(|_| page.format().keeps_key_bias_apart()) {
            None => key,
            Some(bias) => {
                let without_bias = &mut without_bias[..dim];
                without_bias.copy_from_slice(key);
                bias.take_from(without_bias, kv_head, to.turned_by);
                without_bias
            }
        };
        // SAFETY: the caller's.
        unsafe { page.write(isa, at, key, value) };
    }
}
