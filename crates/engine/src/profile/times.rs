//! Timing a layer's nodes at the sizes that anchors are fitted to, within a time for each of them.
//!
//! A sample goes through some layers, and the next one through those that follow, in turns through as many as hold more
//! weights than any cache: so each finds its weights in memory, however few layers it has time for. Points that had their
//! time get no more samples, so that a slow lane is measured less often and not for longer.

use super::ProfileError;
use super::bench::{Bench, Part, Shape, fastest};
use super::effort::Effort;
use super::reach::Reach;
use crate::executors::Site;
use duet_model::Model;
use duet_model::forward::Pass;
use duet_scheduler::few_rows;
use std::time::{Duration, Instant};

/// Sizes of passes that are timed; the first is memory-bound and the last compute-bound.
pub(super) const ROWS: [usize; 5] = [1, 4, 16, 48, 256];
/// Where attention is timed.
const CONTEXT: usize = 1024;
/// Positions of all sizes, and of a pass with a context.
pub(super) const SIZED_POSITIONS: usize = CONTEXT + (ROWS.len() + 1) * (ROWS[ROWS.len() - 1] + 64);
/// Positions of all sizes of a few rows, each on a page of its own.
pub(super) const FEW_POSITIONS: usize = 64 * few_rows::SIZES.len();

/// The sizes, and where attention is timed, as far as the model goes: half of a short context is for rows.
pub(super) fn sizes(model: &Model) -> (&'static [usize], usize) {
    let context = model.config().context.as_usize();
    let count = ROWS.iter().filter(|&&rows| rows <= context / 2).count().clamp(2, ROWS.len());
    let rows = &ROWS[..count];
    (rows, CONTEXT.min(context.saturating_sub(rows[count - 1])))
}

/// How often something is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Samples at most; small passes are short, and get more.
    samples: usize,
    /// Samples at least: one may have met another program.
    least: usize,
    /// What took longer gets no sample beyond these.
    point: Duration,
    /// Samples that would take longer go through fewer layers, one at least.
    sample: Duration,
    /// Sizes of which one layer would take longer are left out. (`reach.rs`)
    longest: Duration,
}

/// Seconds of a layer's nodes.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// The sizes, and where attention was timed beside the beginning.
    pub(super) reach: Reach,
    /// Output projection and feed-forward, or the [product](Bench::product) that stands for them, for each size.
    pub(super) ffn: Vec<f64>,
    /// The same for a few rows, as far as the sizes go.
    pub(super) few: Vec<f64>,
    /// Projection to queries, keys and values, for the largest size.
    pub(super) qkv: f64,
    /// Attention of the largest size, with nothing in the cache.
    pub(super) attention_near: f64,
    /// The same at a long context.
    pub(super) attention_far: f64,
    /// What recurrent layers have in attention's place, for the largest size; zero where there are none.
    pub(super) recurrence: f64,
}

/// A node of every layer for a pass, and how long that took so far.
struct Point {
    pass: usize,
    part: Part,
    /// The layers that samples go through, in turns.
    all: Vec<usize>,
    /// Which of them the next sample begins with, and how many it goes through.
    next: usize,
    layers: usize,
    left: usize,
    spent: Duration,
    /// Seconds of one layer.
    times: Vec<f64>,
}

impl Pace {
    pub(super) fn of(effort: Effort) -> Self {
        match effort {
            Effort::Quick => {
                let [point, sample, longest] = [16, 6, 200].map(Duration::from_millis);
                Self { samples: 6, least: 2, point, sample, longest }
            }
            Effort::Thorough => {
                let [point, sample, longest] = [4, 1, 4].map(Duration::from_secs);
                Self { samples: 30, least: 3, point, sample, longest }
            }
        }
    }

    /// Through how many layers a sample goes where each takes so long.
    fn layers(self, each: Duration) -> usize {
        usize::try_from(self.sample.as_nanos() / each.as_nanos().max(1)).unwrap_or(usize::MAX).max(1)
    }
}

impl Times {
    /// Times everything on the lanes of the site.
    pub(super) fn take(bench: &Bench, site: Site<'_>, pace: Pace) -> Result<Self, ProfileError> {
        let product = bench.product(site.lanes);
        let reach = Reach::find(bench, site, sizes(&bench.model), pace.longest, product)?;
        let (sizes, context) = (&reach.rows[..], reach.context);
        let largest = sizes[sizes.len() - 1];
        let shapes: Vec<Shape> = sizes.iter().map(|&rows| Shape { context: 0, rows }).collect();
        let near = shapes.len() - 1;
        // Small passes are short, and noise is not.
        let samples = |rows: usize| if rows < 48 { 3 * pace.samples } else { pace.samples };
        let mut wanted: Vec<Point> =
            sizes.iter().enumerate().map(|(pass, &rows)| Point::new(pass, product, samples(rows))).collect();
        wanted.extend([Part::Qkv, Part::Attention, Part::Recurrence].map(|part| Point::new(near, part, pace.samples)));
        let mut ffn = timed(bench, site, pace, &shapes, wanted)?;
        let rest = ffn.split_off(sizes.len());
        let [qkv, attention_near, recurrence] = [0, 1, 2].map(|at| rest[at]);
        // Attention alone sees a context. It has its turn after the others: two passes of the largest size take megabytes.
        let far = vec![Point::new(0, Part::Attention, pace.samples)];
        let attention_far = timed(bench, site, pace, &[Shape { context, rows: largest }], far)?[0];
        let few = few(bench, site, pace, (product, largest))?;
        Ok(Self { reach, ffn, few, qkv, attention_near, attention_far, recurrence })
    }
}

/// Seconds of a layer's product for one row, and for as many as are timed.
pub(super) fn ends(bench: &Bench, site: Site<'_>, pace: Pace) -> Result<[f64; 2], ProfileError> {
    let (sizes, _) = sizes(&bench.model);
    let shapes = [sizes[0], sizes[sizes.len() - 1]].map(|rows| Shape { context: 0, rows });
    let points = (0..shapes.len()).map(|pass| Point::new(pass, Part::Ffn, pace.samples)).collect();
    let times = timed(bench, site, pace, &shapes, points)?;
    Ok([times[0], times[1]])
}

/// Seconds of a layer's product for each size of a few rows, up to so many.
fn few(bench: &Bench, site: Site<'_>, pace: Pace, (product, largest): (Part, usize)) -> Result<Vec<f64>, ProfileError> {
    let most = bench.model.config().context.as_usize();
    let sizes = few_rows::SIZES.iter().map(|&rows| rows as usize).take_while(|&rows| rows <= largest);
    let shapes: Vec<Shape> = sizes.map(|rows| Shape { context: 0, rows: most.min(rows) }).collect();
    let points = (0..shapes.len()).map(|pass| Point::new(pass, product, pace.samples)).collect();
    timed(bench, site, pace, &shapes, points)
}

/// The fastest sample of each point. Points take turns, so that the machine's drift meets all of them alike.
fn timed(
    bench: &Bench,
    site: Site<'_>,
    pace: Pace,
    shapes: &[Shape],
    mut points: Vec<Point>,
) -> Result<Vec<f64>, ProfileError> {
    let mut passes = shapes.iter().map(|&shape| bench.pass(&[shape])).collect::<Result<Vec<_>, _>>()?;
    for point in &mut points {
        point.warm_up(bench, &mut passes, site, pace)?;
    }
    while points.iter().any(|point| point.left > 0) {
        for point in &mut points {
            point.sample(bench, &mut passes, site, pace)?;
        }
    }
    for Point { pass, part, layers, spent, times, .. } in &points {
        let (rows, samples) = (shapes[*pass].rows, times.len());
        tracing::debug!(lanes = ?site.lanes, ?part, rows, layers, samples, ?spent, "profiled");
    }
    Ok(points.into_iter().map(|point| fastest(point.times)).collect())
}

impl Point {
    fn new(pass: usize, part: Part, samples: usize) -> Self {
        let (spent, times) = (Duration::ZERO, Vec::new());
        Self { pass, part, all: Vec::new(), next: 0, layers: 1, left: samples, spent, times }
    }

    /// Devices prepare a graph when a layer first sees a number of rows: the layers that it comes to until their time is
    /// over are timed afterwards. Cores need no more than one layer, which says how long it takes.
    fn warm_up(&mut self, bench: &Bench, passes: &mut [Pass], site: Site<'_>, pace: Pace) -> Result<(), ProfileError> {
        self.all = bench.alike(site.lanes, self.part);
        let start = Instant::now();
        for at in 0..self.all.len() {
            let took = bench.time(&mut passes[self.pass], std::iter::once(self.part.node(self.all[at])), site)?;
            self.layers = pace.layers(took);
            self.spent = start.elapsed();
            if !bench.has_device(site.lanes) {
                break;
            }
            if self.spent >= pace.point {
                self.all.truncate(at + 1);
                break;
            }
        }
        Ok(())
    }

    fn sample(&mut self, bench: &Bench, passes: &mut [Pass], site: Site<'_>, pace: Pace) -> Result<(), ProfileError> {
        if self.left == 0 || self.all.is_empty() {
            self.left = 0;
            return Ok(());
        }
        let count = self.layers.min(self.all.len());
        let layers = (self.next..self.next + count).map(|at| self.part.node(self.all[at % self.all.len()]));
        let took = bench.time(&mut passes[self.pass], layers, site)?;
        self.next = (self.next + count) % self.all.len();
        let layer = took / count as u32;
        self.times.push(layer.as_secs_f64());
        self.spent += took;
        let has_time = self.spent < pace.point || self.times.len() < pace.least;
        self.left = if has_time { self.left - 1 } else { 0 };
        self.layers = pace.layers(layer);
        Ok(())
    }
}
