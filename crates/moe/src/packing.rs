//! Gather and scatter: rows that go to a group's experts, in slices of fixed capacity. (NPUMoE §4.2)
//!
//! A group's input is one slice of `capacity` slots for each of its experts, in the group's order. Routed rows stand at
//! the front of their expert's slice, the other slots are zero and what they come to is not read. Scattering what was
//! gathered, each row once and with weight one, gives the rows again, to the bit.

use crate::{Group, Route};
use std::ops::Range;

/// Which row is in which slot of a group's launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    capacity: usize,
    /// For each expert of the group, no more than its capacity.
    slices: Vec<Vec<Route>>,
}

impl Packing {
    /// Packs a list of routes for each of the group's experts.
    ///
    /// # Panics
    /// If there are other experts' routes among them, or more than there is room for.
    #[must_use]
    pub fn of(group: &Group, slices: Vec<Vec<Route>>) -> Self {
        let capacity = group.capacity.as_usize();
        assert!(slices.len() == group.experts.len());
        for (expert, slice) in group.experts.iter().zip(&slices) {
            assert!(slice.len() <= capacity);
            assert!(slice.iter().all(|route| route.expert == *expert));
        }
        Self { capacity, slices }
    }

    /// Slots of the launch, padded or not.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.capacity * self.slices.len()
    }

    /// Slots that hold a row.
    #[must_use]
    pub fn filled(&self) -> usize {
        self.slices.iter().map(Vec::len).sum()
    }

    /// The slots of the group's `index`th expert: what its graph's input of that index is.
    #[must_use]
    pub fn slice(&self, index: usize) -> Range<usize> {
        index * self.capacity..(index + 1) * self.capacity
    }

    /// Fills a launch's input of [`Self::slots`] × `width` values from the chunk's rows.
    ///
    /// # Panics
    /// If a row is not there, or the input has another size.
    pub fn gather(&self, rows: &[f32], width: usize, input: &mut [f32]) {
        assert!(input.len() == self.slots() * width);
        for index in 0..self.slices.len() {
            self.gather_slice(index, rows, width, &mut input[values_of(self.slice(index), width)]);
        }
    }

    /// The same for the slots of the group's `index`th expert alone, where each has an input of its own.
    ///
    /// # Panics
    /// As [`Self::gather`].
    pub fn gather_slice(&self, index: usize, rows: &[f32], width: usize, input: &mut [f32]) {
        assert!(input.len() == self.capacity * width);
        let slice = &self.slices[index];
        for (slot, route) in slice.iter().enumerate() {
            input[values(slot, width)].copy_from_slice(&rows[values(route.row as usize, width)]);
        }
        input[slice.len() * width..].fill(0.0);
    }

    /// Adds a launch's results, weighted, to the rows that they belong to. What padded slots came to is left out.
    ///
    /// # Panics
    /// If a row is not there, or the results have another size.
    pub fn scatter(&self, results: &[f32], width: usize, rows: &mut [f32]) {
        assert!(results.len() == self.slots() * width);
        for index in 0..self.slices.len() {
            self.scatter_slice(index, &results[values_of(self.slice(index), width)], width, rows);
        }
    }

    /// The same for the slots of the group's `index`th expert alone.
    ///
    /// # Panics
    /// As [`Self::scatter`].
    pub fn scatter_slice(&self, index: usize, results: &[f32], width: usize, rows: &mut [f32]) {
        assert!(results.len() == self.capacity * width);
        for (slot, route) in self.slices[index].iter().enumerate() {
            let row = &mut rows[values(route.row as usize, width)];
            for (sum, result) in row.iter_mut().zip(&results[values(slot, width)]) {
                *sum += route.weight * result;
            }
        }
    }

    /// Slots that hold a row, and whose.
    pub fn routes(&self) -> impl Iterator<Item = (usize, &Route)> {
        let slices = self.slices.iter().enumerate();
        slices.flat_map(move |(index, slice)| {
            slice.iter().enumerate().map(move |(at, route)| (index * self.capacity + at, route))
        })
    }
}

fn values(row: usize, width: usize) -> Range<usize> {
    values_of(row..row + 1, width)
}

fn values_of(rows: Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpertId;
    use duet_types::Tokens;
    use proptest::prelude::*;

    fn route(row: u32, expert: u32, weight: f32) -> Route {
        Route { row, expert: ExpertId(expert), weight, saliency: weight }
    }

    fn group(capacity: u32, experts: u32) -> Group {
        Group { capacity: Tokens(capacity), experts: (0..experts).map(ExpertId).collect() }
    }

    #[test]
    fn rows_stand_in_front_and_padding_is_neither_kept_nor_read() {
        let packing =
            Packing::of(&group(2, 3), vec![vec![route(2, 0, 0.5)], vec![], vec![route(0, 2, 2.0), route(2, 2, 1.0)]]);
        let mut input = [9.0; 6];
        packing.gather(&[10.0, 20.0, 30.0], 1, &mut input);
        assert_eq!(input, [30.0, 0.0, 0.0, 0.0, 10.0, 30.0]);
        let mut rows = [1.0; 3];
        packing.scatter(&[4.0, f32::NAN, f32::NAN, f32::NAN, 5.0, 6.0], 1, &mut rows);
        assert_eq!(rows, [11.0, 1.0, 9.0]);
        assert_eq!((packing.slots(), packing.filled(), packing.slice(2)), (6, 3, 4..6));
    }

    proptest! {
        #[test]
        fn scattering_what_was_gathered_gives_the_rows_again(
            to in prop::collection::vec(0_u32..4, 0..30), width in 1_usize..5, spare in 0_u32..3, seed in any::<u32>(),
        ) {
            let mut slices = vec![Vec::new(); 4];
            for (row, &expert) in to.iter().enumerate() {
                slices[expert as usize].push(route(row as u32, expert, 1.0));
            }
            let longest = slices.iter().map(Vec::len).max().unwrap_or(0) as u32;
            let packing = Packing::of(&group(longest + spare, 4), slices);
            let value = |at: usize| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) as f32;
            let rows: Vec<f32> = (0..to.len() * width).map(value).collect();
            let mut slots = vec![f32::NAN; packing.slots() * width];
            packing.gather(&rows, width, &mut slots);
            let mut back = vec![0.0; rows.len()];
            packing.scatter(&slots, width, &mut back);
            prop_assert_eq!(back, rows);
            let empty = slots.chunks_exact(width).filter(|slot| slot.iter().all(|value| *value == 0.0)).count();
            prop_assert!(empty + packing.filled() >= packing.slots());
        }
    }
}
