//! A device's experts with a clock at every step.
//!
//! What the device does is timed from outside, step by step. A layer is run many times on the same rows: the output
//! projection is computed each time, but what comes of it is what came of it the first time, so that each time begins with
//! the same residual stream and the same routes. Without a device the crew does all.

use duet_model::forward::{BegunLaunch, ExpertStats, ExpertWise, Fate, FateCounts, NotRun, RoutedRows};
use duet_moe::{ExpertId, Group, Packing, Route};
use duet_types::{Nanos, Tokens};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The residual stream behind the output projection, once it is known.
pub(super) type Recalled = OnceLock<Vec<f32>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Watched<'a> {
    device: Option<&'a dyn ExpertWise>,
    recalled: &'a Recalled,
    seen: Mutex<Seen>,
}

/// What was seen of one run through a layer.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The output projection, where the device does it.
    pub(super) project: Nanos,
    /// Dividing rows among launches.
    pub(super) dispatch: Nanos,
    /// Gathering and padding rows, and starting.
    pub(super) begin: Nanos,
    /// Waiting for launches, and scattering what they made.
    pub(super) finish: Nanos,
    /// Taken by watching.
    pub(super) aside: Nanos,
    /// Launches as they were packed, without their padding.
    pub(super) packings: Vec<Packing>,
    pub(super) places: FateCounts,
}

impl<'a> Watched<'a> {
    pub(super) fn new(device: Option<&'a dyn ExpertWise>, recalled: &'a Recalled) -> Self {
        Self { device, recalled, seen: Mutex::default() }
    }

    pub(super) fn into_seen(self) -> Seen {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExpertWise for Watched<'_> {
    fn launches(&self) -> usize {
        self.device.map_or(1, ExpertWise::launches)
    }

    fn stats(&self) -> ExpertStats {
        self.device.map(ExpertWise::stats).unwrap_or_default()
    }

    fn place_macs(&self, launch: usize) -> u64 {
        self.device.map_or(0, |device| device.place_macs(launch))
    }

    fn project(&self, layer: usize, attended: &[f32], residual: &[f32], out: &mut [f32]) -> Result<(), NotRun> {
        let Some(recalled) = self.recalled.get() else {
            return Err(NotRun::Unsupported("what comes of it is not known yet".to_owned()));
        };
        let start = Instant::now();
        if let Some(device) = self.device {
            device.project(layer, attended, residual, out)?;
        }
        let projected = Instant::now();
        out.copy_from_slice(recalled);
        let mut seen = self.seen();
        seen.project += Nanos::from(projected - start);
        seen.aside += projected.elapsed().into();
        Ok(())
    }

    fn dispatch(&self, layer: usize, rows: &RoutedRows<'_>) -> Vec<Fate> {
        let start = Instant::now();
        let fates = match self.device {
            Some(device) => device.dispatch(layer, rows),
            None => vec![Fate::Crew; rows.experts.len()],
        };
        let divided = Instant::now();
        self.recalled.get_or_init(|| rows.residual.to_vec());
        let mut seen = self.seen();
        seen.dispatch += Nanos::from(divided - start);
        (seen.packings, seen.places) = (packings(rows, &fates), FateCounts::of(&fates));
        seen.aside += divided.elapsed().into();
        fates
    }

    fn begin(
        &self,
        layer: usize,
        launch: usize,
        rows: &RoutedRows<'_>,
        fates: &[Fate],
    ) -> Result<Box<dyn BegunLaunch + '_>, NotRun> {
        let device = self.device.ok_or_else(|| NotRun::Unsupported("there is no device".to_owned()))?;
        let start = Instant::now();
        let begun = device.begin(layer, launch, rows, fates)?;
        self.seen().begin += start.elapsed().into();
        Ok(Box::new(WatchedLaunch { begun, seen: &self.seen }))
    }
}

struct WatchedLaunch<'a> {
    begun: Box<dyn BegunLaunch + 'a>,
    seen: &'a Mutex<Seen>,
}

impl BegunLaunch for WatchedLaunch<'_> {
    fn finish(self: Box<Self>, rows: &mut RoutedRows<'_>) -> Result<(), NotRun> {
        let Self { begun, seen } = *self;
        let start = Instant::now();
        begun.finish(rows)?;
        seen.lock().unwrap_or_else(PoisonError::into_inner).finish += start.elapsed().into();
        Ok(())
    }
}

/// The rows of each launch, by expert.
fn packings(rows: &RoutedRows<'_>, fates: &[Fate]) -> Vec<Packing> {
    let mut launches: BTreeMap<u32, BTreeMap<ExpertId, Vec<Route>>> = BTreeMap::new();
    for (place, fate) in fates.iter().enumerate() {
        if let Fate::Launch(launch) = *fate {
            let expert = ExpertId(rows.experts[place]);
            let row = (place / rows.places) as u32;
            let route = Route { row, expert, weight: rows.weights[place], saliency: 0.0 };
            launches.entry(launch).or_default().entry(expert).or_default().push(route);
        }
    }
    launches.into_values().map(packing).collect()
}

fn packing(routes: BTreeMap<ExpertId, Vec<Route>>) -> Packing {
    let capacity = Tokens(routes.values().map(Vec::len).max().unwrap_or(0) as u32);
    let (experts, slices) = routes.into_iter().unzip();
    Packing::of(&Group { capacity, experts }, slices)
}
