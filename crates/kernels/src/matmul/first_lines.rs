//! What a worker reads first of the next product's weights, fetched while it waits for the others: memory would idle else,
//! since nothing is asked for at a barrier, nor by the small steps between two products.

use super::{UNITS_TOGETHER, units};
use crate::crew::Worker;
use crate::fetch_to::to_second_cache;
use crate::packed::{PANELS_TOGETHER, PackedMatrix};
use std::ops::Range;

/// The first cache lines of a worker's share of a product, line by line of a few panels side by side: in the order in which few
/// rows of floats read them. Few rows of quants may read the first panel whole before the others; then some lines come too soon.
#[derive(Debug)]
pub struct FirstLines<'a> {
    weights: &'a PackedMatrix,
    /// The first few of the share.
    panels: Range<usize>,
    /// The next line of those.
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
        let first = share.start * PANELS_TOGETHER;
        let end = (share.end * PANELS_TOGETHER).min(weights.panels());
        let panels = first..end.min(first + UNITS_TOGETHER * PANELS_TOGETHER);
        let count = (BYTES / 64).min(panels.len() * weights.lines_of_panel(first));
        Self { weights, panels, next: 0, count }
    }

    /// Asks for the next line, if there is one.
    pub fn fetch_next(&mut self) {
        if self.next == self.count {
            return;
        }
        let (line, panel) = (self.next / self.panels.len(), self.next % self.panels.len());
        if let Some(line) = self.weights.line(self.panels.start + panel, line) {
            to_second_cache(line);
        }
        self.next += 1;
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
            let lines = Mutex::new(Vec::new());
            Scoped { threads: 2 }.run(&|worker| {
                let mut first = FirstLines::of(&weights, &worker);
                // Once more than there are: asks for nothing.
                for _ in 0..=first.count {
                    first.fetch_next();
                }
                assert_eq!(first.next, first.count);
                let all = (0..first.count).map(|at| (first.panels.start + at % first.panels.len(), at));
                lines.lock().unwrap().extend(all.map(|(panel, _)| panel));
            });
            let lines = lines.into_inner().unwrap();
            assert!(lines.iter().all(|&panel| panel < weights.panels()), "{form:?}: no panel that there is not");
            assert!(lines.contains(&0), "{form:?}: the first share begins at the first panel");
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
