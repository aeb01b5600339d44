//! The sweep: every system on every phone, with the constants as they are and at the ends of their intervals.
//!
//! One constant at a time is another one. A figure is read of one such variation as a whole, so that the lowest of several
//! phones is the lowest under the same facts.

use super::assumptions::{Assumed, Assumptions, CALIBRATION_MS, DRAFT_MS, VERIFY_RATIO};
use super::phones::{Phone, Target};
use super::static_passes::Passes;
use super::systems::{Cost, Setting, SingleStream, System};
use crate::report::jobs;
use crate::report::outcome::Estimate;
use crate::traces::TaskTrace;
use duet_sim::SocProfile;
use duet_sim::soc::Path;
use std::num::NonZeroUsize;
use std::ops::Add;

/// Everything under every variation, the first of which is as the profiles are.
#[derive(Debug)]
pub(super) struct Sweep(Vec<World>);

/// Everything under the same facts.
#[derive(Debug)]
pub(super) struct World {
    /// One for each phone and target.
    served: Vec<Served>,
}

/// A model on a phone, under every system.
#[derive(Clone, Debug)]
struct Served {
    /// One for each system.
    systems: Vec<Chosen>,
}

/// A system as it is set best.
#[derive(Clone, Debug)]
struct Chosen {
    setting: Setting,
    /// One for each task.
    costs: Vec<Cost>,
}

/// What is another than it is taken to be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Variation {
    None,
    VerifyRatio(f64),
    Calibration(f64),
    Draft(f64),
    Constant(Path, End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Low,
    High,
}

/// A model on a phone.
pub(super) type Place = (Phone, Target);

/// All places.
pub(super) fn places() -> impl Iterator<Item = Place> + Clone {
    Phone::ALL.into_iter().flat_map(|phone| Target::ALL.map(|target| (phone, target)))
}

impl Sweep {
    /// Serves all requests everywhere.
    pub(super) fn run(traces: &[TaskTrace]) -> Self {
        let variations = variations();
        let places: Vec<Place> = places().collect();
        let work: Vec<(Variation, Place)> =
            variations.iter().flat_map(|&variation| places.iter().map(move |&place| (variation, place))).collect();
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let served = jobs::map(&work, threads, |&(variation, place)| serve(variation, place, traces));
        Self(served.chunks(places.len()).map(|served| World { served: served.to_vec() }).collect())
    }

    /// A figure as it is, and its lowest and highest.
    pub(super) fn estimate(&self, read: impl Fn(&World) -> Option<f64>) -> Option<Estimate> {
        let all: Vec<f64> = self.0.iter().filter_map(&read).collect();
        let value = self.0.first().and_then(&read)?;
        let low = all.iter().copied().fold(value, f64::min);
        let high = all.iter().copied().fold(value, f64::max);
        Some(Estimate { value, low, high })
    }

    /// As the profiles are.
    pub(super) fn nominal(&self) -> &World {
        &self.0[0]
    }
}

impl World {
    /// What a task costs.
    pub(super) fn cost(&self, place: Place, system: System, task: usize) -> Cost {
        self.chosen(place, system).costs[task]
    }

    /// What all tasks cost.
    pub(super) fn all(&self, place: Place, system: System) -> Cost {
        self.chosen(place, system).costs.iter().fold(Cost::default(), |sum, &cost| sum + cost)
    }

    /// How a system is set.
    pub(super) fn setting(&self, place: Place, system: System) -> Setting {
        self.chosen(place, system).setting
    }

    fn chosen(&self, place: Place, system: System) -> &Chosen {
        let at = places().position(|known| known == place).unwrap_or_default();
        &self.served[at].systems[system as usize]
    }
}

fn serve(variation: Variation, (phone, target): Place, traces: &[TaskTrace]) -> Served {
    let (soc, assumptions) = variation.apply(&phone.soc());
    let passes = Passes::new(&soc, &target.shape().heg(), &assumptions);
    let stream = SingleStream { soc: &soc, passes, assumptions };
    Served { systems: System::ALL.map(|system| best(&stream, system, traces)).into() }
}

/// The setting with the lowest latency a token over all tasks; of equals the first.
fn best(stream: &SingleStream<'_>, system: System, traces: &[TaskTrace]) -> Chosen {
    let chosen = system.settings().into_iter().map(|setting| {
        let task = |trace: &TaskTrace| {
            trace.requests.iter().map(|request| stream.serve(system, setting, request)).fold(Cost::default(), Cost::add)
        };
        Chosen { setting, costs: traces.iter().map(task).collect() }
    });
    let latency = |chosen: &Chosen| chosen.costs.iter().fold(Cost::default(), |sum, &cost| sum + cost).ms_per_token();
    chosen.min_by(|a, b| latency(a).total_cmp(&latency(b))).expect("a system has a setting")
}

/// As things are, the ends of what is assumed, and the ends of the constants of NPU, CPU and of loading graphs.
fn variations() -> Vec<Variation> {
    let ends = |assumed: &Assumed, variation: fn(f64) -> Variation| [variation(assumed.low), variation(assumed.high)];
    let mut variations = vec![Variation::None];
    variations.extend(ends(&VERIFY_RATIO, Variation::VerifyRatio));
    variations.extend(ends(&CALIBRATION_MS, Variation::Calibration));
    variations.extend(ends(&DRAFT_MS, Variation::Draft));
    // All phones have the same constants, uncertain on one if they are on another.
    let soc = Phone::K60Pro.soc();
    let uncertain = soc.constants().into_iter().filter(|(_, constant)| constant.interval().is_some());
    let of_units = uncertain.map(|(path, _)| path).filter(|path| {
        let name = path.to_string();
        name.starts_with("npu.") || name.starts_with("cpu.") || name == "graphs.load_gb_s"
    });
    variations.extend(of_units.flat_map(|path| [End::Low, End::High].map(|end| Variation::Constant(path, end))));
    variations
}

impl Variation {
    fn apply(self, soc: &SocProfile) -> (SocProfile, Assumptions) {
        let nominal = Assumptions::NOMINAL;
        let assumptions = match self {
            Self::None => nominal,
            Self::VerifyRatio(ratio) => Assumptions { verify_ratio: Some(ratio), ..nominal },
            Self::Calibration(ms) => Assumptions { calibration_ms: Some(ms), ..nominal },
            Self::Draft(draft_ms) => Assumptions { draft_ms, ..nominal },
            Self::Constant(path, end) => {
                let interval = soc.constants().into_iter().find(|(known, _)| *known == path);
                let interval = interval.and_then(|(_, constant)| constant.interval());
                let at = interval.map(|(low, high)| if end == End::Low { low } else { high });
                return (at.map_or_else(|| soc.clone(), |at| soc.with(path, at)), nominal);
            }
        };
        (soc.clone(), assumptions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_uncertain_on_one_phone_is_on_all() {
        let uncertain = |phone: Phone| {
            let soc = phone.soc();
            let constants = soc.constants().into_iter().filter(|(_, constant)| constant.interval().is_some());
            constants.map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(uncertain(Phone::K60Pro), uncertain(Phone::K70Pro));
        assert_eq!(uncertain(Phone::K60Pro), uncertain(Phone::OnePlus13));
        assert!(uncertain(Phone::K60Pro).len() > 20);
    }

    #[test]
    fn a_variation_changes_one_thing() {
        let soc = Phone::K60Pro.soc();
        let changed = variations().into_iter().map(|variation| {
            let (varied, assumptions) = variation.apply(&soc);
            let constants =
                varied.constants().iter().zip(soc.constants()).filter(|(a, b)| a.1.value != b.1.value).count();
            constants + usize::from(assumptions != Assumptions::NOMINAL)
        });
        // A constant may lie at an end of its interval.
        let changed: Vec<usize> = changed.collect();
        assert!(changed[0] == 0 && changed.iter().all(|&count| count <= 1) && changed.iter().sum::<usize>() > 20);
    }
}
