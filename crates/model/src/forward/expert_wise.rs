//! Experts on another device than the crew's cores.
//!
//! The crew routes: it alone knows which rows go where, and devices with static shapes cannot. The device says of each
//! place, which is an expert of a row, whether one of its launches computes it; then its launches run, one node each
//! (`dispatched.rs`). (NPUMoE §3.1, §4.2)

use super::token_wise::NotRun;
use duet_kernels::fused::RoutedRows;
use duet_types::Bytes;
use std::fmt::Debug;
use std::ops::AddAssign;

/// Runs a model's experts in launches.
pub trait ExpertWise: Debug + Send + Sync {
    /// Launches that a layer has at most.
    fn launches(&self) -> usize;

    /// What it has done so far.
    fn stats(&self) -> ExpertStats;

    /// Multiply-accumulates of a place that a launch computes.
    fn place_macs(&self, launch: usize) -> u64;

    /// Output projection, added to the residual stream: `[rows][queries]` and `[rows][hidden]` to `[rows][hidden]`. The
    /// crew projects for a device that does not.
    ///
    /// # Errors
    /// [`NotRun`].
    fn project(&self, _layer: usize, _attended: &[f32], _residual: &[f32], _out: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported("it does not project".to_owned()))
    }

    /// What becomes of each place of these rows, launches being smaller than [`Self::launches`].
    fn dispatch(&self, layer: usize, rows: &RoutedRows<'_>) -> Vec<Fate>;

    /// Begins a launch on the places that are its, and does not wait.
    ///
    /// # Errors
    /// [`NotRun`].
    fn begin(
        &self,
        layer: usize,
        launch: usize,
        rows: &RoutedRows<'_>,
        fates: &[Fate],
    ) -> Result<Box<dyn BegunLaunch + '_>, NotRun>;
}

/// Who did the output projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectedBy {
    /// The device.
    Device,
    /// The crew.
    Crew,
}

/// A launch that has begun.
pub trait BegunLaunch {
    /// Waits for it and adds what it made of its places to their rows, weighted.
    ///
    /// # Errors
    /// [`NotRun`]; the rows are as they were.
    fn finish(self: Box<Self>, rows: &mut RoutedRows<'_>) -> Result<(), NotRun>;
}

/// What becomes of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The crew computes it: the device does not have the expert.
    Crew,
    /// The crew computes it: the device has no room for it.
    Spilled,
    /// This launch computes it.
    Launch(u32),
    /// Nobody computes it.
    Dropped,
}

/// How many places had each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FateCounts {
    /// Computed by launches.
    pub launched: u64,
    /// Computed by the crew, the device not having the expert.
    pub crew: u64,
    /// Computed by the crew for want of room.
    pub spilled: u64,
    /// Not computed.
    pub dropped: u64,
}

/// What a device did with experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertStats {
    /// What became of places.
    pub places: FateCounts,
    /// Launches.
    pub launches: u64,
    /// Slots of these, padded or not.
    pub slots: u64,
    /// Graphs that were brought there as traffic changed.
    pub loads: u64,
    /// Tries to bring one that failed: the CPU computes its experts until one succeeds.
    pub failed_loads: u64,
    /// What graphs take there now.
    pub resident: Bytes,
}

impl FateCounts {
    /// All places.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.launched + self.crew + self.spilled + self.dropped
    }

    /// Counts fates.
    #[must_use]
    pub fn of(fates: &[Fate]) -> Self {
        fates.iter().fold(Self::default(), |mut counts, fate| {
            *match fate {
                Fate::Crew => &mut counts.crew,
                Fate::Spilled => &mut counts.spilled,
                Fate::Launch(_) => &mut counts.launched,
                Fate::Dropped => &mut counts.dropped,
            } += 1;
            counts
        })
    }
}

impl AddAssign for FateCounts {
    fn add_assign(&mut self, other: Self) {
        self.launched += other.launched;
        self.crew += other.crew;
        self.spilled += other.spilled;
        self.dropped += other.dropped;
    }
}

impl ExpertStats {
    /// What was done since an earlier time; what is resident is what is resident.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (places, before) = (&self.places, &earlier.places);
        Self {
            places: FateCounts {
                launched: places.launched - before.launched,
                crew: places.crew - before.crew,
                spilled: places.spilled - before.spilled,
                dropped: places.dropped - before.dropped,
            },
            launches: self.launches - earlier.launches,
            slots: self.slots - earlier.slots,
            loads: self.loads - earlier.loads,
            failed_loads: self.failed_loads - earlier.failed_loads,
            resident: self.resident,
        }
    }
}
