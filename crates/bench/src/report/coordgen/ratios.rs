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
        let row = |(place, end): (usize, End)| {
            let of_cells = |world: &World| self.cells.iter().map(|&cell| read(world, cell)).reduce(end.choose());
            let estimate: Estimate = sweep.estimate(of_cells)?;
            let quantity = format!("{}, {}", self.quantity, end.name());
            let row =
                Row::new(self.figure, self.setting.clone(), quantity, Unit::Times).computed(Some(estimate), self.n);
            Some(match self.paper {
                Some(paper) => row.paper(Paper::Is(paper[place])),
                None => row,
            })
        };
        [End::Lowest, End::Highest].into_iter().enumerate().filter_map(row).collect()
    }
}

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lowest,
    Highest,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Lowest => "lowest",
            Self::Highest => "highest",
        }
    }

    fn choose(self) -> fn(f64, f64) -> f64 {
        match self {
            Self::Lowest => f64::min,
            Self::Highest => f64::max,
        }
    }
}
