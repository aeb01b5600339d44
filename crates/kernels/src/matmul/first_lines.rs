//! What a worker reads first of the next product's weights, fetched while it waits for the others: memory would idle else,
//! since nothing is asked for at a barrier, nor by the small steps between two products.

use super::units;
use crate::crew::Worker;
use crate::fetch_to::to_second_cache;
use crate::packed::{PANELS_TOGETHER, PackedMatrix};
use std::ops::Range;

/// The first cache lines of a worker's share of a product, panel after panel, as few rows read them.
#[derive(Debug)]
pub struct FirstLines<'a> {
    weights: &'a PackedMatrix,
    panels: Range<usize>,
    /// Lines of a panel; a panel of other weights below them may have others.
    lines: usize,
    /// The next line, of all panels.
    next: usize,
    /// How many there are to fetch.
    count: usize,
}

/// As many bytes as are fetched: they arrive while a crew meets a few times, and leave room in the second cache.
const BYTES: usize = 96 << 10;

impl<'a> FirstLines<'a> {
    /// Those of the product of `weights` that this worker will compute a part of.
    #[must_use]
    pub fn of(weights: &'a PackedMatrix, worker: &Worker<'_>) -> Self {
        let share = worker.share(units(weights));
        let panels = share.start * PANELS_TOGETHER..(share.end * PANELS_TOGETHER).min(weights.panels());
        let lines = weights.lines_of_panel(panels.start);
        let count = (BYTES / 64).min(panels.len() * lines);
        Self { weights, panels, lines, next: 0, count }
    }

    /// Asks for the next line, if there is one.
    pub fn fetch_next(&mut self) {
        if let Some(line) = self.next_line() {
            to_second_cache(line);
        }
    }

    fn next_line(&mut self) -> Option<*const u8> {
        if self.next == self.count {
            return None;
        }
        let (panel, line) = (self.panels.start + self.next / self.lines, self.next % self.lines);
        self.next += 1;
        self.weights.line(panel, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::{Crew, Scoped};
    use crate::packed::{Form, WeightGroup};
    use std::sync::Mutex;

    #[test]
    fn workers_fetch_the_first_panels_of_their_own_shares() {
        for (outputs, inputs, form) in [(48, 40, Form::Q4_0), (16 * 40, 512, Form::Q4K), (16, 32, Form::Q8_0)] {
            let group = |_, _| WeightGroup::zeros(form);
            let weights = PackedMatrix::new(outputs, inputs, form, group).expect("zeros can be packed");
            let begun = Mutex::new(Vec::new());
            Scoped { threads: 2 }.run(&|worker| {
                let share = worker.share(units(&weights));
                let lines = weights.lines_of_panel(0);
                let panels = share.start * PANELS_TOGETHER..(share.end * PANELS_TOGETHER).min(weights.panels());
                let all = panels.flat_map(|panel| (0..lines).map(move |line| (panel, line)));
                let expected = all.map(|(panel, line)| weights.line(panel, line)).take(BYTES / 64);
                let mut first = FirstLines::of(&weights, &worker);
                for line in expected {
                    assert!(line.is_some() && first.next_line() == line, "{form:?}");
                }
                assert_eq!((first.next, first.next_line()), (first.count, None), "{form:?}: no more than that");
                begun.lock().unwrap().push(share.start);
            });
            assert!(begun.into_inner().unwrap().contains(&0), "{form:?}: the first share begins at the first panel");
        }
    }

    #[test]
    fn every_line_of_a_panel_lies_in_the_matrix() {
        for form in Form::ALL.into_iter().filter(|form| !form.is_float()) {
            let weights =
                PackedMatrix::new(33, 300, form, |_, _| WeightGroup::zeros(form)).expect("zeros can be packed");
            let parts: Vec<Range<usize>> = weights
                .parts()
                .flat_map(|part| [part.quants.as_ptr_range(), part.scales.as_ptr_range()])
                .map(|part| part.start.addr()..part.end.addr())
                .collect();
            for panel in 0..weights.panels() {
                let lines = weights.lines_of_panel(panel);
                assert!(lines > 0 && weights.line(panel, lines).is_none(), "{form:?}");
                for line in 0..lines {
                    let line = weights.line(panel, line).expect("a line").addr();
                    assert!(parts.iter().any(|part| part.contains(&line)), "{form:?}");
                }
            }
            assert_eq!(weights.lines_of_panel(weights.panels()), 0);
        }
    }
}
