//! The lowest and the highest of something over phones, models and tasks: how the paper tells most of its results.

use super::sweep::{Sweep, World};
use crate::report::outcome::Estimate;
use crate::report::row::{Paper, Row, Unit};

/// Something that the paper gives a range of.
pub(super) struct Range<'a, C> {
    pub(super) figure: &'static str,
    pub(super) setting: String,
    pub(super) quantity: String,
    /// What it goes over.
    pub(super) cells: &'a [C],
    /// The paper's range.
    pub(super) paper: Option<[f64; 2]>,
    /// Requests that it is of.
    pub(super) n: usize,
}

impl<C: Copy> Range<'_, C> {
    /// A row for the lowest cell and one for the highest; none where there is no cell.
    pub(super) fn rows(self, sweep: &Sweep, read: impl Fn(&World, C) -> f64) -> Vec<Row> {
        let ends: [(&str, fn(f64, f64) -> f64); 2] = [("lowest", f64::min), ("highest", f64::max)];
        let row = |(place, (name, worse)): (usize, (&str, fn(f64, f64) -> f64))| {
            let end = |world: &World| self.cells.iter().map(|&cell| read(world, cell)).reduce(worse);
            let estimate: Estimate = sweep.estimate(end)?;
            let quantity = format!("{}, {name}", self.quantity);
            let row =
                Row::new(self.figure, self.setting.clone(), quantity, Unit::Times).computed(Some(estimate), self.n);
            Some(match self.paper {
                Some(paper) => row.paper(Paper::Is(paper[place])),
                None => row,
            })
        };
        ends.into_iter().enumerate().filter_map(row).collect()
    }
}
